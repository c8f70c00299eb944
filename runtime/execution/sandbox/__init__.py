"""The local sandbox: isolated Harbor environments on Linux without a container engine.

environment.LocalSandboxEnvironment     what Harbor loads by import path
├── options     its options and their defaults
├── network     what a task's network policy means here
├── image       Dockerfile subset → layer, cached by content   (dockerfile: parser)
├── base        root file system derived from the host by allow-list, with a digest
└── sandbox     one running sandbox: start, run commands, move files, stop
    ├── supervisor   the warm fork server of this process
    ├── sandboxd/    what runs on the other side: fork server, PID 1 (standard library only)
    ├── channel      one command: request, pipes, deadline, bounded output
    ├── files, extract   trees in and out, as tar streams that are never trusted
    ├── forward      a port inside → a socket outside
    └── cgroups, state   limits; directories with a written intent
sweep       removes what dead owners left
"""
