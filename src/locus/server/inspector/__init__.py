"""The inspector: pages that show the threads of a store in a browser.

Pages are made on the server, from the same store and with the same grants as the answers of the HTTP API. What is
stored is only text in them: templates escape everything, and the browser runs and loads nothing but files of the
inspector.

    rendering   templates, links and times
    pages       one module for each kind of page
    trees       a JSON value as a tree that can be folded
    lines       what was said with a save, as the lines of a row
    markdown    Markdown as a tree of elements and texts
    images      the images that an item has in itself
    items       the items of a conversation, with calls and their results side by side
    words       the words that differ between two texts, or that somebody looks for
"""
