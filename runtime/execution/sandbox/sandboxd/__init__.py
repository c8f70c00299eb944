"""The far side of a sandbox: fork server and PID 1.

Standard library only, and every module is loaded before the root changes: afterwards there is
no library to import from. `zygote` is the fork server; `init` turns one fork into PID 1;
`root` builds what PID 1 sees; `serve` runs commands; `transfer` moves files; `linux` and
`seccomp` are the system calls.
"""
