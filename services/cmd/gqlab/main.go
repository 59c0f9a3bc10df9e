// Command gqlab is the laboratory of GopherQueue: designs A and B of the task queue,
// the load generator, and the comparison of all designs. gq works without it.
package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq/internal/cli"
)

func main() {
	cli.TuneMemory(os.Getenv, os.DirFS("/")) // as gq does: design C is gq
	os.Exit(run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, os.Stderr))
}

// process is the part of the process that commands may use.
type process struct {
	getenv         func(string) string
	stdout, stderr io.Writer
}

// run runs the program and returns the exit status.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) int {
	return cli.Run(ctx, newRoot(process{getenv, stdout, stderr}), args, stderr)
}

func newRoot(p process) *cobra.Command {
	root := &cobra.Command{
		Use:   "gqlab",
		Short: "The task queue's designs, and their comparison",
		Long: `gqlab runs the designs of the task queue and measures them: six services (svc),
identical nodes (node), a load generator (load), and a comparison of both with the
durable engine of gq serve (compare).

` + cli.ExitHelp,
		Example: `  gqlab compare up A --base-port 7000   start a design and leave it running
  gqlab load --target 127.0.0.1:7000    put it under load
  gqlab compare --quick                 compare all designs in about a minute`,
		Version:       cli.Version("gqlab"),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newCompare(p), newLoad(p), newNode(p), newServe(p), newSvc(p))
	root.SetHelpCommand(cli.NewHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
