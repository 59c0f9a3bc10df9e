package compare

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Memory returns the resident memory of each node in MiB. Nodes for which it is unknown
// are missing.
func (c *Cluster) Memory() map[string]float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	memory := make(map[string]float64)
	for name, n := range c.nodes {
		if mib, ok := resident(n.command.Process.Pid); ok {
			memory[name] = mib
		}
	}
	return memory
}

func resident(pid int) (mib float64, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, rest, ok := bytes.Cut(text, []byte("VmRSS:"))
	if !ok {
		return 0, false
	}
	kib, err := strconv.ParseFloat(string(bytes.Fields(rest)[0]), 64)
	return kib / 1024, err == nil
}
