package main

import (
	"os/exec"
	"strconv"
)

// serveRedis starts a Redis with an append-only file that is synced as a policy says:
// "everysec" or "always".
func serveRedis(p programs, appendfsync string) daemon {
	return daemon{func(dir string, port int) (*exec.Cmd, error) {
		return p.command("redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir,
			"--appendonly", "yes", "--appendfsync", appendfsync, "--save", "", "--maxmemory-policy", "noeviction"), nil
	}}
}
