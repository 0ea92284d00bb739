"""Keeping processes alive: `up` and its children, and what each child does to be seen, to be ready and to end well.

household ... starts, watches, restarts and drains children; imports no Django, so that it stays small
child, log .. one of them; what they print, line by line
home ........ what a folder AGENTRUNS_HOME has only once: its lock, its Redis socket, its demo port
setup ....... migrates, makes the first account, says what is used: before the household starts
work, web ... the life of a worker; the web server's settings
presence, ready ... the heartbeat row; the word to `up` that a child is at work
"""
