package cli

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

// Run runs a program's commands until a signal ends them, tells of an error on stderr
// and returns the exit status.
func Run(ctx context.Context, root *cobra.Command, args []string, stderr io.Writer) int {
	ctx, stop := interruptible(ctx, root.Name(), stderr)
	defer stop()
	started := false
	prepare(root, &started)
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	f := failureOf(ctx, err, started)
	switch {
	case f.Message == "":
	case wantsJSON(command, args, started):
		_ = wire.EncodeJSON(stderr, failed{f}) // there is nowhere else to tell of it
	default:
		fmt.Fprintf(stderr, "%s: %s\n", root.Name(), Printable(f.text()))
		if f.Code == codeUsage {
			fmt.Fprintf(stderr, "Run '%s --help' for usage.\n", command.CommandPath())
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

// interrupt is the cause of a context that a signal ended.
type interrupt struct{ Signal os.Signal }

func (i *interrupt) Error() string { return "stopped by the signal: " + i.Signal.String() }

func (i *interrupt) Unwrap() error { return context.Canceled }

// interruptible is a context that the first signal to stop ends. The second one
// ends the process at once, also where a shell has had the program ignore it: that
// is what the default action of a signal would come back to. SIGHUP is ignored where
// nohup asks for that, and is never the second signal: terminals and service managers
// send it along with another one.
func interruptible(ctx context.Context, program string, stderr io.Writer) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
	finished, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for told := false; ; told = true {
			select {
			case s := <-signals:
				if told && s == syscall.SIGHUP {
					continue
				}
				if told {
					fmt.Fprintf(stderr, "%s: %s again: quit at once\n", program, s)
					os.Exit(ExitFailure)
				}
				cancel(&interrupt{s})
			case <-finished:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(finished)
		<-done
		cancel(nil)
	}
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

// NoArguments is for commands that take flags only.
func NoArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments; unexpected %q", c.CommandPath(), args[0])
	}
	return nil
}

// NewHelp is cobra's help command, except that an unknown topic is an error.
func NewHelp() *cobra.Command {
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
