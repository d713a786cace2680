"""Laws of loading: whole, in part, from what a handle holds, and compared with another checkpoint."""
