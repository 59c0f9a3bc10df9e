// Command gq is GopherQueue: server, client and tools in one program.
//
// Results go to standard output, everything else to standard error. Package cli has the
// exit statuses.
package main

import (
	"context"
	"io"
	"os"
	_ "time/tzdata" // for hosts without time zones, such as our image

	"github.com/spf13/cobra"
	_ "golang.org/x/crypto/x509roots/fallback" // and without root certificates

	"github.com/gopherqueue/gq/internal/cli"
)

func main() {
	cli.TuneMemory(os.Getenv, os.DirFS("/"))
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
}

// process is what commands use of the process they run in.
type process struct {
	getenv         func(string) string
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           dialer
}

// run runs the program and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	return runIn(ctx, args, process{getenv, stdin, stdout, stderr, dialAs(getenv)})
}

// runIn runs the program in a given process.
func runIn(ctx context.Context, args []string, p process) int {
	return cli.Run(ctx, newRoot(p), args, p.stderr)
}

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "gq",
		Short: "GopherQueue, a lease-based job queue",
		Long: `gq is GopherQueue, a lease-based job queue.

Results go to standard output, everything else to standard error. With --json
results and errors are JSON. Commands that talk to a server find it at --addr or
GQ_ADDR, which is its gRPC address; those of matching and facts also at --http or GQ_HTTP.
` + cli.TLSHelp + `

` + cli.ExitHelp,
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
	root.AddCommand(newSubmit(p), newWork(p), newStep(p), newInput(p), newProgressCommand(p), newSpawn(p), newJob(p), newQueue(p), newPool(p), newSchedule(p), newWorkflow(p), newWorkers(p), newDLQ(p), newInboxCommand(p), newWebhook(p), newToken(p), newAudit(p), newStats(p), newTop(p), newEvents(p), newDoctor(p))
	root.AddCommand(newBench(p), newDemo(p), newMatch(p), newProvider(p), newProvide(p), newFacts(p), newMigrate(p), newBackup(p), newRestore(p), newCopy(p), newVersion(p))
	root.SetHelpCommand(cli.NewHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	complete(p, root)
	return root
}
