"""The offline provider: OpenAI's Responses API on loopback, with background mode. Scripted, priced by invention, no AI.

It exists so that agentruns can be tried without a key and tested without mocks: real HTTP, real waiting, real usage,
failures on request, and a ledger of what was billed. Standard library only, and nothing of the rest of agentruns, so
that the process stays small and a fault of ours cannot hide in both places at once.

    __main__    options, signals, the parent
    server      which path is which verb             wire      bytes on the socket, also hurt
    api         create, retrieve, cancel, ledger     errors    what is answered instead of a response
    request     what is refused at once              faults    failures on request
    state       one SQLite file                      prompt    what a request says, as text
    generation  what a response will be              response  what it is now, by the clock
    courier     webhooks out
    script      scripted prose                       events    the same, as a stream
    shapes      scripted JSON                        tokens    counting, caching, prices
"""

MARK = "DEMO MODEL: scripted, no AI"
MODEL = "demo"
PORT = 8723
