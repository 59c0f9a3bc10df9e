package compare

import (
	"bufio"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/gopherqueue/gq/services/internal/load"
	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Write writes results to a directory, which it creates if necessary: settings.env,
// results.json, table.csv, report.md and plots/.
func (r *Results) Write(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "plots"), 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "settings.env"), []byte(r.Plan.SettingsText()), 0o644),
		writeJSON(filepath.Join(dir, "results.json"), r),
		r.writeTable(filepath.Join(dir, "table.csv")),
		r.writePlots(filepath.Join(dir, "plots")),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644),
	)
}

func writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// writeTable writes a line for each row and method. A latency that is a lower bound
// begins with ">=".
func (r *Results) writeTable(name string) error {
	lines := [][]string{{
		"design", "repetition", "loop", "clients", "rate", "work_ms", "mix", "method", "requests", "per_second", "p50_ms", "p95_ms", "p99_ms", "max_ms", "errors",
		"all_per_second", "jobs_per_second", "end_to_end_p50_ms", "end_to_end_p95_ms", "end_to_end_p99_ms",
		"jobs_accepted", "jobs_done_in_time", "jobs_done_after", "jobs_failed", "jobs_lost", "jobs_censored", "jobs_canceled_by_load", "submits_held_back", "unsent",
	}}
	for _, row := range r.Rows {
		loop := "closed"
		if row.Cell.Rate > 0 {
			loop = "open"
		}
		for _, method := range load.MethodNames() {
			m, e, w := row.Methods[method], row.Jobs.EndToEnd, row.Jobs.Window
			failed := 0
			for _, n := range m.Errors {
				failed += n
			}
			line := []string{
				row.Design, strconv.Itoa(row.Repetition), loop, strconv.Itoa(row.Cell.Concurrency), number(row.Cell.Rate), strconv.FormatInt(row.Cell.Work.Milliseconds(), 10), row.Cell.Mix.String(), method,
				strconv.Itoa(m.Requests), number(m.PerSecond), atLeast(m.Latency, m.Latency.P50), atLeast(m.Latency, m.Latency.P95), atLeast(m.Latency, m.Latency.P99), atLeast(m.Latency, m.Latency.Max), strconv.Itoa(failed),
				number(row.PerSecond), number(row.Jobs.PerSecond), atLeast(e, e.P50), atLeast(e, e.P95), atLeast(e, e.P99),
			}
			for _, n := range []int{w.Accepted, w.EndedInWindow, w.EndedAfter, w.Failed, w.Lost, w.Censored, w.Canceled, row.Jobs.HeldBack, row.Unsent} {
				line = append(line, strconv.Itoa(n))
			}
			lines = append(lines, line)
		}
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return errors.Join(csv.NewWriter(file).WriteAll(lines), file.Close())
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

func atLeast(l load.Latency, v float64) string {
	if l.Bound(v) {
		return ">=" + number(v)
	}
	return number(v)
}

// writeRaw writes every request and job of the measured time.
func (row Row) writeRaw(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write raw data: %w", err)
	}
	base := filepath.Join(dir, fmt.Sprintf("%s-%s-%d", row.Design, row.Cell.Name(), row.Repetition))
	requests := writeLines(base+"-requests.csv.gz", func(w *bufio.Writer) {
		fmt.Fprintln(w, "start_us,latency_us,method,code")
		for _, s := range row.Samples {
			fmt.Fprintf(w, "%d,%d,%s,%s\n", s.Start, s.Latency, s.Method, rpc.CodeName(s.Code))
		}
	})
	jobs := writeLines(base+"-jobs.csv.gz", func(w *bufio.Writer) {
		fmt.Fprintln(w, "created_at_ms,time_to_work_ms,end_to_end_ms,outcome")
		for _, j := range row.JobSamples {
			fmt.Fprintf(w, "%d,%d,%d,%s\n", j.Created, j.TimeToWork, j.EndToEnd, j.Outcome)
		}
	})
	return errors.Join(requests, jobs)
}

func writeLines(name string, write func(*bufio.Writer)) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write raw data: %w", err)
	}
	zipped := gzip.NewWriter(file)
	buffered := bufio.NewWriter(zipped)
	write(buffered)
	return errors.Join(buffered.Flush(), zipped.Close(), file.Close())
}
