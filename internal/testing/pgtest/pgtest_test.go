package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
)

func TestMain(m *testing.M) { Main(m) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func TestDatabasesAreSeparate(t *testing.T) {
	a, b := connect(t, Database(t)), connect(t, Database(t))
	if _, err := a.Exec(t.Context(), "CREATE TABLE thing (n int)"); err != nil {
		t.Fatal(err)
	}
	var there bool
	if err := b.QueryRow(t.Context(), "SELECT to_regclass('thing') IS NOT NULL").Scan(&there); err != nil || there {
		t.Errorf("a table of one database is in another: %v, %v", there, err)
	}
}

func TestDatabaseIsClosed(t *testing.T) {
	var url string
	t.Run("Inner", func(t *testing.T) {
		url = Database(t)
		connect(t, url) // and leave it open
	})
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the database of a finished test can still be connected to")
	}
}

func TestOneServer(t *testing.T) {
	c := Start(t)
	if Start(t) != c {
		t.Error("a second server was started")
	}
	var fsync string
	if err := connect(t, c.TCP("postgres")).QueryRow(t.Context(), "SHOW fsync").Scan(&fsync); err != nil || fsync != "on" {
		t.Errorf("over TCP: fsync = %q, %v", fsync, err)
	}
}

func TestProgramDirectory(t *testing.T) {
	root := t.TempDir()
	install := func(dir string, names ...string) string {
		dir = filepath.Join(root, dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	server := []string{"initdb", "postgres"}
	install("packages/9/bin", server...)
	newest := install("packages/17/bin", server...)
	install("packages/18/bin", "initdb") // partly removed
	custom := install("custom", server...)
	links := install("links")
	if err := os.Symlink(filepath.Join(custom, "initdb"), filepath.Join(links, "initdb")); err != nil {
		t.Fatal(err)
	}
	client := install("client", "initdb")

	missing := func(string) (string, error) { return "", os.ErrNotExist }
	in := func(dir string) func(string) (string, error) {
		return func(name string) (string, error) { return filepath.Join(dir, name), nil }
	}
	packages := filepath.Join(root, "packages/*/bin")
	for _, test := range []struct {
		name    string
		path    func(string) (string, error)
		pattern string
		want    string
	}{
		{"NewestPackage", missing, packages, newest},
		{"Path", in(custom), packages, custom},
		{"PathThroughLink", in(links), packages, custom},
		{"PathWithoutServer", in(client), packages, newest},
		{"Nowhere", missing, filepath.Join(root, "none/*/bin"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := programDirectory(test.path, test.pattern)
			if got != test.want || (test.want == "") != errors.Is(err, errNoPrograms) {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}
