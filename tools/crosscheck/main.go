// Command crosscheck type-checks gq for platforms other than this one:
//
//	go run ./tools/crosscheck darwin/arm64 windows/amd64
//
// It finds what a build for those platforms would stumble over, such as a system
// call that Windows lacks, without compiling the standard library and every
// dependency for them, which takes minutes from an empty cache. make cross builds.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck OS/ARCH...")
		os.Exit(2)
	}
	faults := make([]error, len(os.Args)-1)
	var running sync.WaitGroup
	for i, platform := range os.Args[1:] {
		running.Go(func() { faults[i] = check(".", platform, "./cmd/gq") })
	}
	running.Wait()
	if err := errors.Join(faults...); err != nil {
		fmt.Fprintf(os.Stderr, "crosscheck: %v\n", err)
		os.Exit(1)
	}
}

// A listed package is what go list says of one.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	ImportMap  map[string]string
	Module     *struct{ Main bool }
	Error      *struct{ Err string }
}

// check type-checks a package and everything it imports. Dependencies were built by
// their makers, so the bodies of their functions are left out.
func check(dir, platform, root string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return fmt.Errorf("%q is no platform: want OS/ARCH, for example windows/amd64", platform)
	}
	list := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module,Error", root)
	list.Dir = dir
	list.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s: go list: %w", platform, err)
	}

	files := token.NewFileSet()
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	var faults []error
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; { // dependencies come first
		var p listed
		if err := decoder.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("%s: go list: %w", platform, err)
		}
		if p.Error != nil {
			faults = append(faults, fmt.Errorf("%s: %s", platform, p.Error.Err))
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			parsed = append(parsed, file)
		}
		ours := p.Module != nil && p.Module.Main
		config := types.Config{
			Importer:         importer{p.ImportMap, checked},
			Sizes:            types.SizesFor("gc", arch),
			IgnoreFuncBodies: !ours,
			FakeImportC:      true,
			Error: func(err error) {
				if ours {
					faults = append(faults, fmt.Errorf("%s: %w", platform, err))
				}
			},
		}
		checked[p.ImportPath], _ = config.Check(p.ImportPath, files, parsed, nil) // Error was told
	}
	return errors.Join(faults...)
}

// importer finds packages among those that were checked.
type importer struct {
	renamed map[string]string
	checked map[string]*types.Package
}

func (i importer) Import(path string) (*types.Package, error) {
	if to, ok := i.renamed[path]; ok {
		path = to
	}
	if p := i.checked[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("package %s was not listed", path)
}
