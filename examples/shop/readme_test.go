package main

import (
	"bufio"
	"context"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// readme runs the commands of README.md. Programs are built once instead of with go run, and
// servers listen on free ports.
type readme struct {
	t       *testing.T
	env     []string
	replace *strings.Replacer
}

// TestReadme runs every command of the README, in its order.
func TestReadme(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts programs")
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, block := range strings.Split(string(text), "```sh\n")[1:] {
		commands, _, _ := strings.Cut(block, "```")
		blocks = append(blocks, commands)
	}
	if len(blocks) != 10 {
		t.Fatalf("the README has %d blocks of commands; add the new ones here", len(blocks))
	}

	shop := filepath.Join(t.TempDir(), "shop")
	if err := cmdtest.Build(shop, "github.com/gopherqueue/gq/examples/shop"); err != nil {
		t.Fatal(err)
	}
	cluster := pgtest.Start(t)
	at, err := url.Parse(cluster.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	addr, http, grpc := freeAddr(t), freeAddr(t), freeAddr(t)
	r := readme{
		t: t,
		// libpq and pgx read the rest of postgres:///shop from these.
		env: append(os.Environ(), "PGHOST="+at.Query().Get("host"), "PGPORT="+at.Query().Get("port"), "PGUSER="+at.User.Username(),
			"GQ_HTTP="+http, "GQ_GRPC="+grpc, "GQ_ADDR="+grpc),
		replace: strings.NewReplacer(
			"go run ./examples/shop", shop+" -addr "+addr,
			"go run ./cmd/gq", cmdtest.Program(t),
			"localhost:8080", addr),
	}

	stop := r.start(blocks[0], "msg=open")
	calls := func() {
		r.run(blocks[1], `"state":"placed"`, `"state":"shipped"`)
		r.run(blocks[2], `"state":"placed"`, "approved gq.signal PENDING", `"state":"shipped"`)
		r.run(blocks[3], `"state":"failed"`, "charge order.charge FAILED", "apologise mail.apologise COMPLETED")
		jobs := regexp.MustCompile(`"reminder":"([^"]+)"`).FindAllStringSubmatch(r.run(blocks[4]), -1)
		if len(jobs) != 2 || jobs[0][1] != jobs[1][1] {
			t.Errorf("the reminders are %q", jobs)
		}
		r.run(blocks[5], "<html", "name=payments")
	}
	calls()
	stop()

	create, serve, _ := strings.Cut(blocks[6], "\n")
	r.run(create)
	stop = r.start(serve, "msg=open")
	defer stop()
	calls()
	stopServer := r.start(blocks[7], "http")
	defer stopServer()
	r.run(blocks[8], "order a-1", "order a-2", "SUCCEEDED", "FAILED", "payments")
	if blocks[9] != "go test ./examples/shop\n" { // which runs this
		t.Errorf("the last block is %q", blocks[9])
	}
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r readme) command(ctx context.Context, commands string) *exec.Cmd {
	c := exec.CommandContext(ctx, "/bin/sh", "-euc", r.replace.Replace(commands))
	c.Env = r.env
	return c
}

// run runs commands to their end and returns what they print, which must contain some texts.
func (r readme) run(commands string, want ...string) string {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	out, err := r.command(ctx, commands).CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v\n%s\n%s", err, commands, out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			r.t.Errorf("no %s in the output:\n%s\n%s", w, commands, out)
		}
	}
	return string(out)
}

// start runs a server until stop is called, and returns when it has printed a text.
func (r readme) start(command, ready string) (stop func()) {
	r.t.Helper()
	c := r.command(context.Background(), "exec env "+command) // the signal is for the program, not for the shell
	out, err := c.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	c.Stderr = c.Stdout
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	var printed strings.Builder
	lines := bufio.NewScanner(out)
	for !strings.Contains(printed.String(), ready) && lines.Scan() {
		printed.WriteString(lines.Text() + "\n")
	}
	if !strings.Contains(printed.String(), ready) {
		r.t.Fatalf("%s ended with %v:\n%s", command, c.Wait(), printed.String())
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for lines.Scan() {
			printed.WriteString(lines.Text() + "\n")
		}
	}()
	return func() {
		if err := c.Process.Signal(os.Interrupt); err != nil {
			r.t.Errorf("%s: %v", command, err)
		}
		<-drained
		if err := c.Wait(); err != nil {
			r.t.Errorf("%s ended with %v:\n%s", command, err, printed.String())
		}
	}
}
