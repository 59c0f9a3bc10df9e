package pgtest

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user that runs the programs.
type account struct{ uid, gid uint32 }

// unprivileged returns an account if the tests run as root, under which PostgreSQL
// refuses to run; otherwise nil.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		return &account{uint32(uid), uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no account postgres or nobody to run it as")
}
