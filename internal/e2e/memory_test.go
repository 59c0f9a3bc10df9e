package e2e_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// TestServerMemoryLimit checks which memory limit servers use.
func TestServerMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		args []string
		want string
	}{
		"from the environment": {[]string{"GOMEMLIMIT=300MiB"}, nil, "soft_limit_bytes=314572800"},
		"from a setting":       {[]string{"GOMEMLIMIT=300MiB"}, []string{"--memory-limit", "200MiB"}, "soft_limit_bytes=209715200"},
		"found":                {nil, nil, "soft_limit_bytes="},
	} {
		if _, err := os.Stat("/proc/meminfo"); name == "found" && err != nil {
			continue // there is nothing to find
		}
		s := startServer(t, c.env, append([]string{"--store", "memory:"}, c.args...)...)
		s.Signal(syscall.SIGTERM)
		s.Ended()
		if log := s.Stderr.String(); !strings.Contains(log, c.want) {
			t.Errorf("%s: the log has no %s\n%s", name, c.want, log)
		}
	}
}
