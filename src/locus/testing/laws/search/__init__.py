"""Laws of search: by words in what is stored, and by values in metadata."""
