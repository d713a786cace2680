"""The inspector: pages that show the threads of a store in a browser.

Pages are made on the server, from the same store and with the same grants as the answers of the HTTP API. Whatever is
stored is text there: templates escape everything, and the browser is told to run and to load nothing but our own files.

    rendering   templates, links, times and sizes as people read them
    pages       one module for each kind of page
    trees       a JSON value as a tree that can be folded
    items       the items of a conversation, with calls and their results side by side
    words       what differs between two texts
"""
