package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/term"
	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
)

// Bounds of gq top --interval.
const (
	minInterval = 500 * time.Millisecond
	maxInterval = time.Minute
)

func newTop(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "top",
		Short: "Watch queues, workers and failures live",
		Long: `Watch queues, workers and failures live, look into a job, pause and resume queues.
Press ? for the keys. Rates are of the last ten seconds.

With --once it measures rates for one interval, prints one frame with all queues and
ends.`,
		Example: "  gq top\n  gq top --once --queue mail",
		Args:    cli.NoArguments,
	}
	r := newRemote(p, c)
	c.Flags().Lookup("json").Hidden = true
	interval := c.Flags().Duration("interval", 2*time.Second, fmt.Sprintf("time between frames, %v to %v", minInterval, maxInterval))
	once := c.Flags().Bool("once", false, "print one frame and end")
	filter := c.Flags().String("queue", "", "show only queues whose names contain this")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case *interval < minInterval || *interval > maxInterval:
			return cli.Invalid("interval", fmt.Sprintf("%v is not between %v and %v", *interval, minInterval, maxInterval))
		case r.json:
			return cli.Invalid("json", "gq top is for people; use gq stats --json")
		case !*once && (!isTerminal(p.stdin) || !isTerminal(p.stdout)):
			return cli.Invalid("once", "gq top needs a terminal; add --once to print one frame, or use gq stats --json")
		}
		r.patience = patient
		m := newTopModel(*interval, *filter, r.screen())
		m.addr = cmp.Or(r.addr, p.getenv("GQ_ADDR"), defaultAddr)
		if !*once {
			// The frame says that the server is unreachable.
			dial := r.dial
			r.dial = func(addr string, _ time.Duration, _ func(bool)) (queue, func() error, error) {
				return dial(addr, impatient, nil)
			}
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			m.ctx, m.queue = ctx, q
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				m.follow()
			}()
			defer func() { stop(); <-ended }()
			if *once {
				return m.once(r)
			}
			return m.run(p)
		})
	}
	return c
}

// follow counts events until the program ends.
func (m *topModel) follow() {
	looked := false // at the events before the first that counts
	for m.ctx.Err() == nil {
		last, err := m.queue.LastEvent(m.ctx)
		if err == nil {
			if !looked {
				// Without them, because they are no longer kept or because the token may not read
				// them, the page begins empty.
				events, _ := m.queue.Events(m.ctx, last-min(last, pastEvents), pastEvents)
				m.rates.past(events)
				looked = true
			}
			m.rates.begin(nil)
			err = m.queue.Follow(m.ctx, last, func(events []gq.Event) error {
				m.rates.note(events)
				return nil
			})
		}
		if err != nil {
			m.rates.begin(err)
		}
		select {
		case <-m.ctx.Done():
		case <-time.After(2 * time.Second):
		}
	}
}

// once prints one frame with all rows.
func (m *topModel) once(r *remote) error {
	select {
	case <-m.ctx.Done():
		return m.ctx.Err()
	case <-time.After(m.interval):
	}
	msg := m.sample(m.subject)
	if msg.err != nil {
		return msg.err
	}
	m.sampled(msg)
	m.width = widthOf(r.stdout, r.getenv)
	for _, line := range m.frame(0) {
		r.screen().line("%s", strings.TrimRight(line, " "))
	}
	return nil
}

// widthOf is the width of one frame: of the terminal, of COLUMNS, or 100.
func widthOf(out io.Writer, getenv func(string) string) int {
	const least = 40
	if file, ok := out.(*os.File); ok {
		if n, _, err := term.GetSize(file.Fd()); err == nil && n >= least {
			return n
		}
	}
	if n, err := strconv.Atoi(getenv("COLUMNS")); err == nil && n >= least {
		return n
	}
	return 100
}

// run shows frames until the user quits.
func (m *topModel) run(p process) error {
	in, _ := p.stdin.(*os.File)
	out, _ := p.stdout.(*os.File)
	program := tea.NewProgram(m, tea.WithContext(m.ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	_, err := program.Run()
	if errors.Is(err, tea.ErrProgramKilled) && m.ctx.Err() != nil {
		return nil
	}
	return err
}
