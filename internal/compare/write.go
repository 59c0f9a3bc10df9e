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

	"github.com/gopherqueue/gq/internal/load"
	"github.com/gopherqueue/gq/internal/rpc"
)

// Write puts results into a directory, which is made if it is missing:
// settings.json, results.json, table.csv, report.md, plots/ and raw/.
func (r *Results) Write(dir string) error {
	for _, sub := range []string{"raw", "plots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("write results: %w", err)
		}
	}
	faults := []error{
		writeJSON(filepath.Join(dir, "settings.json"), r.Plan),
		writeJSON(filepath.Join(dir, "results.json"), r),
		r.writeTable(filepath.Join(dir, "table.csv")),
		r.writePlots(filepath.Join(dir, "plots")),
		os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.Markdown()), 0o644),
	}
	for _, row := range r.Rows {
		faults = append(faults, row.writeRaw(filepath.Join(dir, "raw", row.Design+"-"+row.Cell.Name())))
	}
	return errors.Join(faults...)
}

func writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// writeTable writes a line for each row and method.
func (r *Results) writeTable(name string) error {
	lines := [][]string{{
		"design", "loop", "clients", "rate", "work_ms", "mix", "method", "requests", "per_second", "p50_ms", "p95_ms", "p99_ms", "max_ms", "errors",
		"all_per_second", "jobs_per_second", "end_to_end_p50_ms", "end_to_end_p95_ms", "end_to_end_p99_ms",
	}}
	for _, row := range r.Rows {
		loop := "closed"
		if row.Cell.Rate > 0 {
			loop = "open"
		}
		for _, method := range load.MethodNames() {
			m, e := row.Methods[method], row.Jobs.EndToEnd
			failed := 0
			for _, n := range m.Errors {
				failed += n
			}
			lines = append(lines, []string{
				row.Design, loop, strconv.Itoa(row.Cell.Concurrency), number(row.Cell.Rate), strconv.FormatInt(row.Cell.Work.Milliseconds(), 10), row.Cell.Mix.String(), method,
				strconv.Itoa(m.Requests), number(m.PerSecond), number(m.Latency.P50), number(m.Latency.P95), number(m.Latency.P99), number(m.Latency.Max), strconv.Itoa(failed),
				number(row.PerSecond), number(row.Jobs.PerSecond), number(e.P50), number(e.P95), number(e.P99),
			})
		}
	}
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return errors.Join(csv.NewWriter(file).WriteAll(lines), file.Close())
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', 3, 64) }

// writeRaw writes every request and every job that ended.
func (row Row) writeRaw(base string) error {
	requests := writeLines(base+"-requests.csv.gz", func(w *bufio.Writer) {
		fmt.Fprintln(w, "start_us,latency_us,method,code")
		for _, s := range row.Samples {
			fmt.Fprintf(w, "%d,%d,%s,%s\n", s.Start, s.Latency, s.Method, rpc.CodeName(s.Code))
		}
	})
	jobs := writeLines(base+"-jobs.csv.gz", func(w *bufio.Writer) {
		fmt.Fprintln(w, "created_at_ms,time_to_work_ms,end_to_end_ms")
		for _, j := range row.JobSamples {
			fmt.Fprintf(w, "%d,%d,%d\n", j.Created, j.TimeToWork, j.EndToEnd)
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
