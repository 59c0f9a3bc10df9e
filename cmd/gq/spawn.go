package main

import (
	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wire"
)

func newSpawn(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "spawn TYPE",
		Short: "Submit a job with the completion of another, in a program of gq work",
		Long: `Submit a job if the job of this program completes, in a program that gq work --exec
runs. The jobs of all calls are stored in one commit with the completion. If the
program fails or its lease is lost, none of them is: the next attempt spawns its
own.

The jobs of one program can wait for each other by the names that --ref gives
them, whatever the order of the calls: --needs waits until the named jobs have
completed, and --needs-end until they have ended, successfully or not.

The command prints nothing, as the jobs have no ids yet. The queue checks them when
the program has ended. A job that it refuses, for example because of an unknown
name, makes the job of the program fail permanently with the code invalid_spawn.`,
		Example: `  gq work --type album --exec ./album.sh

  # album.sh
  gq spawn thumbnail --ref a --payload '{"photo":"a.jpg"}'
  gq spawn thumbnail --ref b --payload '{"photo":"b.jpg"}'
  gq spawn publish --needs a,b`,
		Args: oneArgument("the type of the job"),
	}
	var f specFlags
	var ref string
	var needs, ends []string
	flags := c.Flags()
	flags.StringVar(&ref, "ref", "", "name of the job among those of this program")
	flags.StringSliceVar(&needs, "needs", nil, "names of jobs of this program that must complete first")
	flags.StringSliceVar(&ends, "needs-end", nil, "names of jobs of this program that must end first, in whatever way")
	f.add(flags, true)
	flags.SortFlags = false
	c.RunE = func(c *cobra.Command, args []string) error {
		spec, err := f.spec(p, args[0])
		if err != nil {
			return err
		}
		spec.Ref = ref
		for _, name := range needs {
			spec.DependsOn = append(spec.DependsOn, gq.Dependency{Kind: gq.DependencyAfter, Ref: name})
		}
		for _, name := range ends {
			spec.DependsOn = append(spec.DependsOn, gq.Dependency{Kind: gq.DependencyFanIn, Ref: name})
		}
		_, err = p.callWorker(c.Context(), workCall{Spawn: new(wire.ChildOf(&spec))}, nil)
		return err
	}
	return c
}
