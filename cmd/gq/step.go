package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
)

// Exit statuses of gq step and gq input for errors that are not those of the command, as a script
// passes them on to gq work.
const exitPermanent = 65 // EX_DATAERR of sysexits.h

func newStep(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "step NAME -- COMMAND [ARGUMENT…]",
		Short: "Run a command once per job, in a program of gq work",
		Long: `Run a command as a step of a job, in a program that gq work --exec runs. What the
command writes to standard output is recorded with the job and then printed. If
the job runs again, the command of a recorded step does not: gq step prints its
recorded output. So a retry goes on after the last recorded step. If the machine
fails between the end of the command and the record, the command runs again.

NAME identifies the step within the job; a loop needs a name for each turn. The
outputs of all steps of a job together can have 1 MiB. Standard input and
standard error are those of gq step.

If the command fails, nothing is recorded, and gq step exits with its status.
Otherwise it exits with 75 if the output could not be recorded for now, for
example because the lease is lost, and with 65 if it never can be: gq work
retries the job after the first and not after the second.`,
		Example: `  gq work --type order --exec ./order.sh

  # order.sh
  set -e
  receipt=$(gq step charge -- ./charge.sh)
  gq step pack -- ./pack.sh "$receipt"`,
		Args: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) < 2 || c.ArgsLenAtDash() != 1:
				return cli.Invalid("step", "give the name of the step and its command: gq step NAME -- COMMAND")
			case args[0] == "" || len(args[0]) > gq.MaxNameBytes:
				return cli.Invalid("step", fmt.Sprintf("a name has 1 to %d bytes", gq.MaxNameBytes))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			reply, err := p.callWorker(c.Context(), workCall{Step: args[0]}, func() ([]byte, error) {
				return p.runStep(c.Context(), args[1:])
			})
			if err != nil {
				return err
			}
			_, err = p.stdout.Write(reply)
			return err
		},
	}
}

func newInput(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "input NAME",
		Short: "Print the result of another job of the workflow, in a program of gq work",
		Long: `Print the result of another job of the same workflow by its name, in a program
that gq work --exec runs. The results of the jobs that this one depends on came
with the claim; gq input asks the queue only for larger ones and those of other
jobs. All that came with the claim are also in the JSON file $GQ_INPUTS, an
object by name with the members "state" and "result" or "result_base64".

It exits with 3 if the workflow has no such job, and with 65 if that job has not
completed.`,
		Example: `  gq work --type pack --exec 'gq input charge | ./pack.sh'
  gq work --type pack --exec 'jq -r .charge.result.receipt "$GQ_INPUTS"'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return cli.Invalid("input", "give the name of a job: gq input NAME")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			reply, err := p.callWorker(c.Context(), workCall{Input: args[0]}, nil)
			if err != nil {
				return err
			}
			_, err = p.stdout.Write(reply)
			return err
		},
	}
}

func newProgressCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "progress PART [NOTE]",
		Short: "Report the progress of a job, in a program of gq work",
		Long: `Report how much of a job is done, in a program that gq work --exec runs. PART is a
number from 0 to 1, or a percentage such as 40%. NOTE is a text for people.

Reports are shown by gq job get and the dashboard, and gq events --follow prints
them as job.progress. They are not kept in the history. The worker sends the
newest report about once a second, and the last one before the job ends.`,
		Example: `  gq work --type import --exec ./import.sh

  # import.sh
  gq progress 0.5 "row 500 of 1000"
  gq progress 80%`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 1 || len(args) > 2 {
				return cli.Invalid("progress", "give the part that is done and, if you like, a note: gq progress 0.5 'row 500'")
			}
			_, err := progressPart(args[0])
			return err
		},
		RunE: func(c *cobra.Command, args []string) error {
			part, err := progressPart(args[0])
			if err != nil {
				return err
			}
			call := workCall{Progress: &part}
			if len(args) > 1 {
				call.Note = args[1]
			}
			_, err = p.callWorker(c.Context(), call, nil)
			return err
		},
	}
}

// progressPart parses a number from 0 to 1 or a percentage.
func progressPart(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	part, err := strconv.ParseFloat(number, 64)
	if percent {
		part /= 100
	}
	if err != nil || !(part >= 0 && part <= 1) {
		return 0, cli.Invalid("progress", fmt.Sprintf("%.40q is not a number from 0 to 1 or a percentage", text))
	}
	return part, nil
}

// runStep runs the command of a step and returns its output.
func (p process) runStep(ctx context.Context, args []string) ([]byte, error) {
	command := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // that is what the user asked for
	output := &limited{most: maxStepOutput}
	command.Stdin, command.Stdout, command.Stderr = p.stdin, output, p.stderr
	err := command.Run()
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case exited:
		_, _ = io.Copy(p.stdout, &output.data)
		status := exit.ExitCode()
		if status < 0 { // a signal: other programs say 128 and its number, which is not known on all systems
			status = exitTemporary
		}
		return nil, &cli.StatusError{Status: status}
	case err != nil:
		return nil, &cli.StatusError{Status: 127, Err: err}
	case output.over:
		return nil, &cli.StatusError{Status: exitPermanent, Err: fmt.Errorf("the command wrote more than %d bytes", output.most)}
	}
	return output.data.Bytes(), nil
}

// callWorker sends a call to the worker that runs this program. If the worker says so, it calls
// work and sends its output.
func (p process) callWorker(ctx context.Context, call workCall, work func() ([]byte, error)) ([]byte, error) {
	path := p.getenv(socketVariable)
	if path == "" {
		return nil, cli.Invalid(socketVariable, "is not set; gq step, gq input, gq progress and gq spawn work in programs that gq work --exec runs")
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, &cli.StatusError{Status: exitTemporary, Err: fmt.Errorf("call the worker: %w", err)}
	}
	defer conn.Close()
	in, out := json.NewDecoder(conn), json.NewEncoder(conn)
	var reply workReply
	exchange := func(message any) error {
		reply = workReply{}
		err := out.Encode(message)
		if err == nil {
			err = in.Decode(&reply)
		}
		if err != nil {
			return &cli.StatusError{Status: exitTemporary, Err: fmt.Errorf("call the worker: %w", err)}
		}
		return nil
	}
	if err := exchange(call); err != nil {
		return nil, err
	}
	if reply.Run {
		output, err := work()
		if err != nil {
			return nil, err
		}
		if err := exchange(workReply{Data: bytes.Clone(output)}); err != nil {
			return nil, err
		}
	}
	switch {
	case reply.Missing:
		return nil, &cli.StatusError{Status: cli.ExitNotFound, Err: errors.New(reply.Error)}
	case reply.Error != "" && reply.Temporary:
		return nil, &cli.StatusError{Status: exitTemporary, Err: errors.New(reply.Error)}
	case reply.Error != "":
		return nil, &cli.StatusError{Status: exitPermanent, Err: errors.New(reply.Error)}
	}
	return reply.Data, nil
}
