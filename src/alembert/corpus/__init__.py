"""From the files a user has to documents with exact offsets: readers, writers and what is built on them."""
