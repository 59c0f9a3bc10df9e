package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// A program of gq work calls its worker back through a Unix socket, which gq step, gq input,
// gq progress and gq spawn use: it has no lease of its own. Messages are JSON values.
//
//	program                worker
//	{"step":"charge"}      {"data":…} if the step is recorded, or {"run":true}
//	{"data":…}             {"data":…} once the output is recorded
//	{"input":"charge"}     {"data":…}
//	{"progress":0.5,"note":"half"}
//	                       {}
//	{"spawn":{"type":"t"}} {} once the worker has it; it submits the job with the completion

// socketVariable names the socket, and inputsVariable the file with the results of the job's
// dependencies.
const (
	socketVariable = "GQ_SOCKET"
	inputsVariable = "GQ_INPUTS"
)

type workCall struct {
	Step  string `json:"step,omitempty"`
	Input string `json:"input,omitempty"`

	Progress *float64 `json:"progress,omitempty"`
	Note     string   `json:"note,omitempty"`

	Spawn *wire.Child `json:"spawn,omitempty"`
}

type workReply struct {
	Run       bool   `json:"run,omitempty"`
	Data      []byte `json:"data,omitempty"`
	Error     string `json:"error,omitempty"`
	Temporary bool   `json:"temporary,omitempty"` // repeating it can help
	Missing   bool   `json:"missing,omitempty"`   // there is no job with this name
}

// maxStepOutput is the largest output of a step. What fits also depends on the other steps.
const maxStepOutput = 1 << 20

// maxCallBytes limits what a program sends in one call: the payload of a job in base64, and some more.
const maxCallBytes = gq.MaxPayloadBytes*4/3 + 64<<10

// callDir is the directory with the sockets of the running programs.
type callDir struct {
	path string
	last atomic.Int64
}

// maxSocketPath is the longest path that all systems accept for a socket.
const maxSocketPath = 100

func newCallDir() (*callDir, error) {
	path, err := os.MkdirTemp("", "gq-work-")
	if err == nil && len(path) > maxSocketPath-20 {
		_ = os.Remove(path)
		path, err = os.MkdirTemp("/tmp", "gq-work-")
	}
	if err != nil {
		return nil, fmt.Errorf("make a directory for the sockets of programs: %w", err)
	}
	return &callDir{path: path}, nil
}

func (d *callDir) remove() { _ = os.RemoveAll(d.path) }

// serve answers the calls of a program until stop is called. It returns the variables that the
// program needs.
func (d *callDir) serve(ctx context.Context, run *worker.Run) (environ []string, stop func(), err error) {
	name := filepath.Join(d.path, strconv.FormatInt(d.last.Add(1), 10))
	inputs := ""
	if list := run.Inputs(); len(list) > 0 {
		inputs = name + ".json"
		data, err := json.Marshal(wire.InputsByRef(list))
		if err == nil {
			err = os.WriteFile(inputs, data, 0o600)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("write the inputs of the job: %w", err)
		}
		environ = append(environ, inputsVariable+"="+inputs)
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for calls of the program: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	calls.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			calls.Go(func() {
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				defer conn.Close()
				answer(ctx, conn, run)
			})
		}
	})
	return append(environ, socketVariable+"="+name), func() {
		cancel()
		listener.Close()
		calls.Wait()
		if inputs != "" {
			_ = os.Remove(inputs)
		}
	}, nil
}

// anyResult is a kind whose result is any bytes.
var anyResult = gq.NewKind[gq.None, []byte]("any")

// answer handles one call of a program.
func answer(ctx context.Context, conn io.ReadWriter, run *worker.Run) {
	in, out := json.NewDecoder(io.LimitReader(conn, maxCallBytes)), json.NewEncoder(conn)
	var call workCall
	if err := in.Decode(&call); err != nil {
		return
	}
	var data []byte
	var err error
	switch {
	case call.Progress != nil:
		err = run.Progress(ctx, *call.Progress, call.Note)
	case call.Spawn != nil:
		err = spawn(run, call.Spawn)
	case call.Step == "":
		data, err = worker.ResultOf(run, anyResult, call.Input)
	default:
		data, err = worker.Step(ctx, run, call.Step, func(context.Context) ([]byte, error) {
			if err := out.Encode(workReply{Run: true}); err != nil {
				return nil, err
			}
			var done workReply
			err := in.Decode(&done) // fails if the command did, because the caller leaves then
			return done.Data, err
		})
	}
	reply := workReply{Data: data}
	if err != nil {
		reply = workReply{Error: err.Error(), Temporary: !final(err), Missing: errors.Is(err, gq.ErrNotFound)}
	}
	_ = out.Encode(reply) // an error means that the program has gone
}

// spawn submits a job when the job of the program completes.
func spawn(run *worker.Run, child *wire.Child) error {
	// Only values that the queue refuses anyway need its policy.
	specs, err := wire.Children([]wire.Child{*child}, func(string) (gq.Policy, error) { return machine.DefaultPolicy(), nil })
	if err == nil {
		run.SpawnOnSuccess(specs...)
	}
	return err
}

// final reports whether an error comes again.
func final(err error) bool {
	_, permanent := errors.AsType[*gq.PermanentError](err)
	_, ended := errors.AsType[*gq.JobError](err)
	return permanent || ended || errors.Is(err, gq.ErrNotFound) || errs.KindOf(err) == gq.KindInvalid
}
