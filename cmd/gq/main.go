// Command gq is GopherQueue: server, client and tools in one program.
//
// Results go to standard output, everything else to standard error. Its exit
// statuses are in exit.go.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/wire"
)

func main() {
	tuneMemory(os.Getenv, os.DirFS("/"))
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// process is what commands may use of the process they run in.
type process struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           dialer
}

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runIn(ctx, args, process{getenv, stdin, stdout, stderr, dialAs(getenv)})
}

// runIn is the program in a process.
func runIn(ctx context.Context, args []string, p process) int {
	ctx, stop := interruptible(ctx, p.stderr)
	defer stop()

	root := newRoot(p)
	started := false
	prepare(root, &started)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	f := failureOf(ctx, err, started)
	switch {
	case f.Message == "":
	case wantsJSON(command, args, started):
		_ = wire.EncodeJSON(p.stderr, failed{f}) // there is nowhere else to tell of it
	default:
		fmt.Fprintf(p.stderr, "gq: %s\n", f.text())
		if f.Code == codeUsage {
			fmt.Fprintf(p.stderr, "Run '%s --help' for usage.\n", command.CommandPath())
		}
	}
	return f.ExitStatus
}

// wantsJSON reports whether a program reads what the command says. A command that
// did not get as far as running may not have read its flags.
func wantsJSON(c *cobra.Command, args []string, started bool) bool {
	if f := c.Flags().Lookup("json"); started && f != nil {
		return f.Value.String() == "true"
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// interruptible is a context that the first signal to stop ends. The second one
// ends the process at once, also where a shell has had the program ignore it: that
// is what the default action of a signal would come back to.
func interruptible(ctx context.Context, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	finished, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for told := false; ; told = true {
			select {
			case s := <-signals:
				if told {
					fmt.Fprintf(stderr, "gq: %s again: quit at once\n", s)
					os.Exit(exitFailure)
				}
				cancel()
			case <-finished:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(finished)
		<-done
		cancel()
	}
}

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "gq",
		Short: "GopherQueue, a lease-based job queue",
		Long: `gq is GopherQueue, a lease-based job queue.

Results go to standard output, everything else to standard error. With --json
results and errors are JSON. Commands that talk to a server find it at --addr or
GQ_ADDR, which is its gRPC address; those of matching also at --http or GQ_HTTP.

` + exitHelp,
		Example: `  gq demo                                  watch a queue at work, without a server
  gq serve                                 run a server on ./gq-data
  gq submit email.send --payload '{}'      submit a job and print its id
  gq work --type email.send --exec CMD     run a program for every such job
  gq job explain ID                        say why a job is not running
  gq bench --store memory:                 measure this machine
  gq submit --help                         explain a command`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newServe(p), newConfig(p))
	root.AddCommand(newSubmit(p), newWork(p), newJob(p), newQueue(p), newPool(p), newSchedule(p), newWorkers(p), newDLQ(p), newWebhook(p), newToken(p), newStats(p), newDoctor(p))
	root.AddCommand(newBench(p), newDemo(p), newMatch(p), newProvide(p), newMigrate(p), newBackup(p), newRestore(p), newCopy(p), newVersion(p))
	root.AddCommand(newCompare(p), newLoad(p), newNode(p), newSvc(p)) // the task queue's designs
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	complete(p, root)
	return root
}

// prepare makes all commands below one behave alike: a command that only groups
// others refuses what it does not know, and started tells whether one got as
// far as running, which is after its usage was found right.
func prepare(c *cobra.Command, started *bool) {
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.Flags().Bool("json", false, "") // of the command that is missing
		_ = c.Flags().MarkHidden("json")
		c.RunE = func(c *cobra.Command, args []string) error { return missing(c, args) }
	} else if inner := c.RunE; inner != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			*started = true
			return inner(c, args)
		}
	}
	for _, child := range c.Commands() {
		prepare(child, started)
	}
}

// missing is the error of a command that needs another one after it.
func missing(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		var names []string
		for _, child := range c.Commands() {
			if child.IsAvailableCommand() || child.Name() == "help" {
				names = append(names, child.Name())
			}
		}
		return fmt.Errorf("a command is missing after %s; want one of %s", c.CommandPath(), strings.Join(names, ", "))
	}
	c.SuggestionsMinimumDistance = 2
	text := fmt.Sprintf("unknown command %q for %s", args[0], c.CommandPath())
	if similar := c.SuggestionsFor(args[0]); len(similar) > 0 {
		text += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(text)
}

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and %q is one", c.CommandPath(), args[0])
	}
	return nil
}

// newHelp is cobra's help command, except that an unknown topic is an error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Explain a command",
		Args: func(c *cobra.Command, args []string) error {
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 && found.HasSubCommands() {
				return missing(found, rest)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			found, _, err := c.Root().Find(args)
			if err != nil {
				return err
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}
