"""A campaign: clients use a store, faults strike, and what the clients were told is held against what is stored.

::

    site       what a campaign needs to know of a store, and the faults that can be done to it
    history    what each client was told, in files that outlive it
    recorded   a checkpointer that writes this history
    workload   what clients do: saves of all kinds, forks, conflicts, deletions, copies, vacuums
    agents     agents among them, with tools whose effects are counted outside of the store
    client     one client process, and what goes wrong inside of it: cancellations, crowds, a clock that jumps
    clock      a clock that jumps
    found      what is stored in the end, read by a handle that knows nothing
    judged     the history in the order in which the checks look at it
    finding    what is reported
    checker    pure functions over the history and what was found
    reads      the same for what clients have read meanwhile
    effects    the same for tools: none twice
    faults     what strikes clients from outside: SIGKILL
    plan       what happens in a round, decided by its seed
    rounds     the rounds themselves
    tally      what has been survived so far, in a file
    report     the same as a table

`python -m locus.testing.campaign URL --seconds 60 --seed 1` runs one on a store of your own.
"""
