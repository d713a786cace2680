"""Laws of stores that outlive a process: kills, several processes at once, outages, stalls and damage."""
