package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// programs is a directory with the servers that are not installed on this machine.
type programs struct {
	dir      string
	progress io.Writer
}

func (p programs) bin() string { return filepath.Join(p.dir, "usr", "bin") }

// command returns a command that finds programs and libraries in the directory first.
func (p programs) command(name string, args ...string) *exec.Cmd {
	path := filepath.Join(p.bin(), name)
	if _, err := os.Stat(path); err != nil {
		path = name
	}
	cmd := exec.Command(path, args...) //nolint:noctx // the caller stops it
	libraries, _ := filepath.Glob(filepath.Join(p.dir, "usr", "lib", "*-linux-*"))
	cmd.Env = append(os.Environ(),
		"PATH="+p.bin()+string(filepath.ListSeparator)+os.Getenv("PATH"),
		"LD_LIBRARY_PATH="+strings.Join(libraries, string(filepath.ListSeparator)))
	return cmd
}

func (p programs) has(name string) bool {
	if _, err := os.Stat(filepath.Join(p.bin(), name)); err == nil {
		return true
	}
	_, err := exec.LookPath(name)
	return err == nil
}

// debian unpacks a program from packages of the distribution, if it is not there yet. It
// installs nothing and starts no service.
func (p programs) debian(ctx context.Context, name string, packages ...string) error {
	if p.has(name) {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("%s is not installed, and there is no apt-get to fetch it with", name)
	}
	fmt.Fprintf(p.progress, "unpacking %s into a scratch directory\n", name)
	dir, err := os.MkdirTemp(p.dir, "packages-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	fetch := exec.CommandContext(ctx, "apt-get", append([]string{"-qq", "download"}, packages...)...)
	fetch.Dir = dir
	if out, err := fetch.CombinedOutput(); err != nil {
		return fmt.Errorf("%s is not installed, and apt-get download %s: %w\n%s", name, strings.Join(packages, " "), err, out)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if out, err := exec.CommandContext(ctx, "dpkg", "-x", file, p.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg -x %s: %w\n%s", filepath.Base(file), err, out)
		}
	}
	return nil
}

// redis and beanstalkd make these servers available.
func (p programs) redis(ctx context.Context) error {
	return p.debian(ctx, "redis-server", "redis-server", "redis-tools", "libjemalloc2", "liblzf1", "liblua5.1-0", "lua-bitop", "lua-cjson", "libhiredis0.14", "libatomic1")
}

func (p programs) beanstalkd(ctx context.Context) error {
	return p.debian(ctx, "beanstalkd", "beanstalkd")
}

// build compiles a program, in the module of a directory, at the version of its go.mod.
func (p programs) build(ctx context.Context, module, pkg, name string) error {
	fmt.Fprintf(p.progress, "building %s\n", name)
	if err := os.MkdirAll(p.bin(), 0o755); err != nil { //nolint:gosec // programs
		return err
	}
	file, err := filepath.Abs(filepath.Join(p.bin(), name))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", file, pkg)
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0") // as it is released
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// install builds a program of a module that is none of ours, if it is not there yet.
func (p programs) install(ctx context.Context, name, pkg string) error {
	if p.has(name) {
		return nil
	}
	fmt.Fprintf(p.progress, "building %s, which takes minutes\n", name)
	dir, err := filepath.Abs(p.bin())
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "install", "-trimpath", pkg)
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go install %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// version returns the first line that a program prints about itself.
func (p programs) version(name, flag string) string {
	out, err := p.command(name, flag).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil || line == "" {
		return "unknown"
	}
	return line
}
