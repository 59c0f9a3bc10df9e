package compare_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/compare"
	"github.com/gopherqueue/gq/internal/load"
)

// composeWords is what runs Compose here. The test is skipped where there is no
// engine to run it on.
func composeWords(t *testing.T) []string {
	t.Helper()
	if err := exec.Command("docker", "info", "--format", "{{.ServerVersion}}").Run(); err != nil {
		t.Skip("containers need a Docker engine, and none can be reached here")
	}
	words := strings.Fields(os.Getenv("GQ_COMPOSE"))
	if len(words) == 0 {
		words = []string{"docker", "compose"}
	}
	if err := exec.Command(words[0], append(words[1:], "version")...).Run(); err != nil {
		t.Skip("no Compose; GQ_COMPOSE can name one")
	}
	return words
}

// Both designs build, start and serve in containers, and survive a node that is
// killed and one that is paused. scripts/docker-faults does it to every node. It
// names no requirement, since it is skipped where there is no Docker engine.
func TestContainers(t *testing.T) {
	words := composeWords(t)
	if out, err := exec.Command("../../scripts/docker-build").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for name, node := range map[string]string{"A": "worker", "B": "node-4"} {
		t.Run(name, func(t *testing.T) {
			d, err := compare.Find(name)
			if err != nil {
				t.Fatal(err)
			}
			system, err := compare.Compose(words, "../../docker")(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := system.Stop(); err != nil {
					t.Error(err)
				}
			}()
			works(t, system.Addresses())
			for _, fault := range [][2]string{{"kill", "start"}, {"pause", "unpause"}} {
				for _, command := range fault {
					lower := strings.ToLower(name)
					args := append(words[1:len(words):len(words)], "-p", "gq-"+lower, "-f", "../../docker/compose."+lower+".yaml", command, node)
					if out, err := exec.Command(words[0], args...).CombinedOutput(); err != nil {
						t.Fatalf("%s %s: %v\n%s", command, node, err, out)
					}
				}
				works(t, system.Addresses())
			}
		})
	}
}

// works wants a load without a wrong answer, soon: a node that comes back needs
// a moment.
func works(t *testing.T, targets []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := load.DefaultSettings()
	s.Targets, s.Concurrency, s.Warmup, s.Duration, s.Drain = targets, 4, 200*time.Millisecond, 500*time.Millisecond, 3*time.Second
	for {
		report, err := load.Run(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, m := range report.Methods {
			for _, n := range m.Errors {
				failed += n
			}
		}
		if report.Correct() && failed == 0 && report.Jobs.Done > 0 {
			return
		}
		t.Logf("not yet: %d failed, %+v %v", failed, report.Jobs, report.Examples)
	}
}
