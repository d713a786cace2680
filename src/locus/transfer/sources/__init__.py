"""Where threads can be moved in from: each module reads what one other library has stored, and changes nothing."""
