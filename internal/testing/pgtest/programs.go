package pgtest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// errNoPrograms is what a developer sees first on a new machine, so it says what to do.
var errNoPrograms = errors.New(`the PostgreSQL programs initdb and postgres are not installed.
The tests of the PostgreSQL store start a server of their own and need them:
  make postgres                  installs them where it can
  apt-get install postgresql     on Debian and Ubuntu
or put the directory with these programs on PATH`)

// packageDirectories is where Debian and its derivatives install each version's
// programs, outside of PATH.
const packageDirectories = "/usr/lib/postgresql/*/bin"

// programDirectory finds the directory of the server's programs: that of the programs
// in PATH, with links resolved, or else the newest packaged version.
func programDirectory(path func(string) (string, error), pattern string) (string, error) {
	if initdb, err := path("initdb"); err == nil {
		if target, err := filepath.EvalSymlinks(initdb); err == nil && complete(filepath.Dir(target)) {
			return filepath.Dir(target), nil
		}
	}
	found, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	slices.SortFunc(found, func(a, b string) int { return version(b) - version(a) })
	for _, dir := range found {
		if complete(dir) {
			return dir, nil
		}
	}
	return "", errNoPrograms
}

// version returns the number in /usr/lib/postgresql/15/bin.
func version(bin string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(bin)))
	if err != nil {
		return -1
	}
	return n
}

// complete reports whether a directory has both programs. Client packages install one
// of the names without the server.
func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

func installed() (string, error) { return programDirectory(exec.LookPath, packageDirectories) }
