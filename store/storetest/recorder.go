package storetest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// recorder is a test that can fail without failing the test it runs in. It keeps its output
// and runs its cleanups when it ends.
type recorder struct {
	testing.TB // implements the other methods
	name       string

	mu       sync.Mutex
	output   strings.Builder // guarded by mu
	failed   bool            // guarded by mu
	skipped  bool            // guarded by mu
	cleanups []func()        // guarded by mu
}

// Helper implements [testing.TB].
func (r *recorder) Helper() {}

// Name implements [testing.TB].
func (r *recorder) Name() string { return r.name }

// Context implements [testing.TB].
func (r *recorder) Context() context.Context { return context.Background() }

// Log implements [testing.TB].
func (r *recorder) Log(args ...any) { r.write(fmt.Sprintln(args...), false) }

// Logf implements [testing.TB].
func (r *recorder) Logf(f string, args ...any) { r.write(fmt.Sprintf(f, args...), false) }

// Error implements [testing.TB].
func (r *recorder) Error(args ...any) { r.write(fmt.Sprintln(args...), true) }

// Errorf implements [testing.TB].
func (r *recorder) Errorf(f string, args ...any) {
	r.write(fmt.Sprintf(f, args...), true)
}

// Fatal implements [testing.TB].
func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

// Fatalf implements [testing.TB].
func (r *recorder) Fatalf(f string, args ...any) {
	r.Errorf(f, args...)
	runtime.Goexit()
}

// Fail implements [testing.TB].
func (r *recorder) Fail() { r.write("", true) }

// FailNow implements [testing.TB].
func (r *recorder) FailNow() {
	r.Fail()
	runtime.Goexit()
}

// Failed implements [testing.TB].
func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// Skip implements [testing.TB].
func (r *recorder) Skip(args ...any) {
	r.Log(args...)
	r.SkipNow()
}

// Skipf implements [testing.TB].
func (r *recorder) Skipf(f string, args ...any) {
	r.Logf(f, args...)
	r.SkipNow()
}

// SkipNow implements [testing.TB].
func (r *recorder) SkipNow() {
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

// Skipped implements [testing.TB].
func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

// Cleanup implements [testing.TB].
func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// TempDir removes its directory when the recorder ends, not only with the outer test.
func (r *recorder) TempDir() string {
	dir, err := os.MkdirTemp("", "storetest")
	if err != nil {
		r.Fatalf("make a directory: %v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("remove a directory: %v", err)
		}
	})
	return dir
}

func (r *recorder) write(text string, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	if text != "" {
		r.output.WriteString(strings.TrimSuffix(text, "\n") + "\n")
	}
}

// cleanup runs the registered functions, last in, first out.
func (r *recorder) cleanup() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}

func (r *recorder) result() (output string, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.output.String(), r.failed
}
