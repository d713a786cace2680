"""Campaigns: clients use a store while faults strike, and a checker compares their answers with what is stored.

::

    site       the protocols of a store and its faults
    history    the record of each client's requests and answers, in files that outlive the client
    recorded   a checkpointer that writes this record
    workload   the steps of clients: saves of all kinds, forks, conflicts, deletions, copies, vacuums
    agents     agents among the clients, with tools whose effects are counted outside the store
    client     one client process, and the faults inside it: cancellations, crowds, a clock that jumps
    clock      a clock that jumps
    found      reads the stored threads at the end, with a new handle
    judged     the history, sorted and indexed for the checks
    finding    the violations that a campaign reports
    checker    checks the history against the stored threads; pure functions
    reads      checks the reads that clients have made; pure functions
    effects    checks that no tool has taken effect twice; pure functions
    faults     the faults of client processes, such as SIGKILL
    plan       the faults and the order of a round, decided by its seed
    rounds     runs the rounds
    tally      the counts of all rounds so far, in a file
    report     the counts as a table

`python -m locus.testing.campaign URL --seconds 60 --seed 1` runs one on a store of your own.
"""
