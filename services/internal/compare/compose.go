package compare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Containers is what Results.How says of designs that Compose launched.
const Containers = "containers of one Docker engine"

// ComposePort is the first port that the Compose files publish on the host.
const ComposePort = 7000

// Compose launches designs with the Compose files of a directory, compose.a.yaml and so
// on, whose images must have been built. command runs Compose, such as "docker
// compose".
func Compose(command []string, dir string) Launcher {
	return func(ctx context.Context, d Design) (System, error) {
		file := filepath.Join(dir, "compose."+strings.ToLower(d.Name)+".yaml")
		if _, err := os.Stat(file); err != nil {
			return nil, fmt.Errorf("design %s has no Compose file: %w", d.Name, err)
		}
		c := &composed{command: append(command, "-p", "gq-"+strings.ToLower(d.Name), "-f", file), slots: d.Slots}
		for i := range d.Published {
			c.public = append(c.public, net.JoinHostPort("127.0.0.1", strconv.Itoa(ComposePort+i)))
		}
		if err := c.run(ctx, "up", "-d"); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		ctx, cancel := context.WithTimeout(ctx, startTime)
		defer cancel()
		for _, addr := range c.public {
			if err := serving(ctx, addr); err != nil {
				return nil, errors.Join(err, c.Stop())
			}
		}
		return c, nil
	}
}

type composed struct {
	command []string
	public  []string
	slots   int
}

func (c *composed) Addresses() []string        { return c.public }
func (c *composed) Memory() map[string]float64 { return nil } // the processes belong to the engine
func (c *composed) Stop() error                { return c.run(context.Background(), "down", "-v") }

func (c *composed) run(ctx context.Context, args ...string) error {
	all := append(c.command[1:len(c.command):len(c.command)], args...)
	cmd := exec.CommandContext(ctx, c.command[0], all...)
	cmd.Env = append(os.Environ(), composeSlots(c.slots)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", c.command[0], strings.Join(all, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// serving waits until an address serves.
func serving(ctx context.Context, addr string) error {
	conn, err := rpc.DialOnce(addr, "compare")
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // only asked for health
	health := grpc_health_v1.NewHealthClient(conn)
	for {
		answer, err := health.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err == nil && answer.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING {
			return nil
		}
		if !rpc.Wait(ctx, pollInterval) {
			return fmt.Errorf("%s does not serve: %w", addr, errors.Join(err, ctx.Err()))
		}
	}
}
