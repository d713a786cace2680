"""The laws of the contract, in a folder for each subject. `locus.testing.contract` puts them together.

    saving        values, conflicts, retries, forks, pending writes, and what a save costs
    loading       whole states, parts, windows, differences, exports
    listing       the order of checkpoints, and lists of threads
    removal       deletion, vacuum, expiry, and the bytes that they free
    search        words and metadata
    names         ids and namespaces
    durability    kills, processes, outages, stalls, damage
    handles       opening and closing, capabilities, the versioned saver

The tests of a mixin class (`…Laws`) are laws; they run on the fixture `store`. `base` has the fixtures and comparisons
that all of them share.
"""
