// Package nftabletest imitates nft, for tests of what uses package nftable.
package nftabletest

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Kernel is an oscommand.Runner that runs nft with one table. It is not safe for concurrent use.
type Kernel struct {
	// Name is the table's family and name.
	Name string
	// Table is what the table contains; blank if it does not exist.
	Table string
	// Writes counts scripts that have changed the table.
	Writes int
	// IsMissing is true on a host without nft.
	IsMissing bool
	// Err is the error of every command.
	Err error
}

// Run implements oscommand.Runner.
func (k *Kernel) Run(_ context.Context, stdin string, args ...string) (string, error) {
	switch line := strings.Join(args, " "); {
	case k.IsMissing:
		return "", fmt.Errorf("running nft: %w", &exec.Error{Name: "nft", Err: exec.ErrNotFound})
	case k.Err != nil:
		return "", k.Err
	case line == "nft -f -":
		k.Writes++
		_, k.Table, _ = strings.Cut(stdin, "delete table "+k.Name+"\n")
		return "", nil
	case line == "nft list table "+k.Name && k.Table != "":
		return k.Table, nil
	}
	return "", errors.New("running nft: No such file or directory")
}
