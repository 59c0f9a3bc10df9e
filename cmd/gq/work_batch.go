package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/worker"
)

// manyVariable tells a program how many jobs it gets.
const manyVariable = "GQ_BATCH"

// oneOfMany is a job of a program that gets many at once.
type oneOfMany = worker.Job[[]byte]

// executeMany runs the program for many jobs of a type and returns a verdict for each.
func (f *workFlags) executeMany(ctx context.Context, typ string, jobs []*oneOfMany, stderr io.Writer) []error {
	results := newResultLines(jobs)
	ended := f.runProgram(ctx, program{
		stdin: &jobLines{jobs: jobs}, stdout: results, stderr: stderr,
		environ: []string{"GQ_JOB_TYPE=" + typ, manyVariable + "=" + strconv.Itoa(len(jobs))},
	})
	results.end()
	verdicts := make([]error, len(jobs))
	for i, job := range jobs {
		said, ok := results.by[job.ID()]
		switch {
		case ok && said.status != 0:
			verdicts[i] = exitError(said.status, said.text, job.Run)
		case ok && said.result != nil:
			verdicts[i] = job.SetResult(said.result)
		case ok:
		case ctx.Err() != nil:
			verdicts[i] = context.Cause(ctx)
		case results.fault != "":
			verdicts[i] = &gq.PermanentError{Message: results.fault, Code: "invalid_output"}
		default:
			verdicts[i] = ended.verdict(job.Run)
		}
	}
	return verdicts
}

// jobLines reads as one JSON object a line for each job. It encodes them one by one.
type jobLines struct {
	jobs []*oneOfMany
	line []byte
}

func (l *jobLines) Read(p []byte) (int, error) {
	for len(l.line) == 0 {
		if len(l.jobs) == 0 {
			return 0, io.EOF
		}
		line, err := jobLine(l.jobs[0])
		if err != nil {
			return 0, err
		}
		l.line, l.jobs = line, l.jobs[1:]
	}
	n := copy(p, l.line)
	l.line = l.line[n:]
	return n, nil
}

func jobLine(job *oneOfMany) ([]byte, error) {
	j := wire.ExecJob{
		ID: job.ID(), Type: job.Type(), Queue: job.Queue(), Attempt: job.Attempt(), LeaseVersion: uint64(job.LeaseVersion()),
		CorrelationID: job.CorrelationID(), Slot: job.Slot(), WorkflowOutcome: job.WorkflowOutcome(),
	}
	j.SetPayload(job.Payload())
	trace := tracing.Fields(job.Context())
	j.Traceparent, j.Tracestate = trace["traceparent"], trace["tracestate"]
	if j.Payload != nil { // it may have line breaks
		var compact bytes.Buffer
		if err := json.Compact(&compact, j.Payload); err != nil {
			return nil, err
		}
		j.Payload = compact.Bytes()
	}
	var line bytes.Buffer
	err := wire.EncodeJSON(&line, j)
	return line.Bytes(), err
}

// maxResultLine is the longest line that a program may write, with a result in base64.
const maxResultLine = maxCallBytes

// resultLines reads what a program writes about its jobs.
type resultLines struct {
	by    map[gq.JobID]saidOf // what it has said
	jobs  map[gq.JobID]bool   // those that it got
	fault string              // of the first line that is no result
	line  []byte              // the beginning of the next line
	n     int                 // lines
}

type saidOf struct {
	result []byte
	status int // exit status of a failure
	text   string
}

func newResultLines(jobs []*oneOfMany) *resultLines {
	l := &resultLines{by: map[gq.JobID]saidOf{}, jobs: make(map[gq.JobID]bool, len(jobs))}
	for _, job := range jobs {
		l.jobs[job.ID()] = true
	}
	return l
}

func (l *resultLines) Write(p []byte) (int, error) {
	n := len(p)
	for l.fault == "" && len(p) > 0 {
		line, rest, ended := bytes.Cut(p, []byte{'\n'})
		if len(l.line)+len(line) > maxResultLine {
			l.refuse("has more than %d bytes", maxResultLine)
			break
		}
		l.line = append(l.line, line...)
		if p = rest; ended {
			l.end()
		}
	}
	return n, nil
}

// refuse records that the current line is no result. Later lines do not count.
func (l *resultLines) refuse(format string, args ...any) {
	l.fault, l.line = fmt.Sprintf("line %d of the program's output ", l.n+1)+fmt.Sprintf(format, args...), nil
}

// end takes in the current line.
func (l *resultLines) end() {
	line := bytes.TrimSpace(l.line)
	l.line = l.line[:0]
	if l.fault != "" || len(line) == 0 {
		return
	}
	var said wire.ExecResult
	err := wire.DecodeJSON(line, &said)
	var one saidOf
	if err == nil {
		one.text = said.Error
		one.result, one.status, err = said.Outcome()
	}
	_, twice := l.by[said.ID]
	switch {
	case err != nil:
		l.refuse("is not the result of a job: %s", faultsText(err))
	case !l.jobs[said.ID]:
		l.refuse("names job %s, which the program did not get", said.ID)
	case twice:
		l.refuse("names job %s for the second time", said.ID)
	case len(one.result) > gq.MaxPayloadBytes:
		l.refuse("has a result of more than %d bytes", gq.MaxPayloadBytes)
	default:
		one.result = bytes.Clone(one.result)
		l.by[said.ID] = one
		l.n++
	}
}

// faultsText lists what is wrong, in one line.
func faultsText(err error) string {
	faults := errs.FaultsOf(err)
	if len(faults) == 0 {
		return err.Error()
	}
	return faults[0].Field + ": " + faults[0].Problem
}
