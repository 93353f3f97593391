package software

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// packages asks the package databases of the host.
type packages struct {
	files    files
	commands oscommand.Runner
}

// database is a kind of package database.
type database struct {
	// marks are files of it, of which the host has one if it has the database.
	marks []string
	// query is the command that finds the package of a file.
	query []string
	// owns reports whether the output of a query that succeeded names a package.
	owns func(output string) bool
	// denies reports whether a query that failed says that no package owns the file.
	denies func(output string, err error) bool
}

// notFound is the exit status of queries for a file that no package owns.
const notFound = 1

func databases() []database {
	return []database{
		{
			marks: []string{"/var/lib/dpkg/status"},
			query: []string{"dpkg-query", "--search"},
			owns: func(output string) bool {
				return slices.ContainsFunc(strings.Split(output, "\n"), func(line string) bool {
					return line != "" && !strings.HasPrefix(line, "diversion by ") && !strings.HasPrefix(line, "local diversion ")
				})
			},
			denies: func(string, error) bool { return true },
		},
		{
			marks: []string{"/var/lib/rpm", "/usr/lib/sysimage/rpm", "/usr/share/rpm"},
			query: []string{"rpm", "--query", "--file"},
			owns:  func(output string) bool { return output != "" },
			// Without a readable database rpm says that no package owns the file, too.
			denies: func(output string, err error) bool { return output != "" && !strings.Contains(err.Error(), "error: ") },
		},
	}
}

// origin returns Package if a package owns the file, Other if none does, and "" if a
// database does not answer.
func (p packages) origin(ctx context.Context, name string) protocol.Origin {
	names := []string{name}
	if resolved := p.files.resolved(name); resolved != name {
		names = append(names, resolved)
	}
	origin := protocol.OriginOther
	for _, d := range databases() {
		if !slices.ContainsFunc(d.marks, func(mark string) bool { return len(p.files.glob(mark)) > 0 }) {
			continue
		}
		for _, name := range names {
			isOwned, isKnown := p.ask(ctx, d, name)
			switch {
			case isOwned:
				return protocol.OriginPackage
			case !isKnown:
				origin = ""
			}
		}
	}
	return origin
}

// ask returns whether a package of the database owns the file. isKnown is false if the
// database does not answer.
func (p packages) ask(ctx context.Context, d database, name string) (isOwned, isKnown bool) {
	// Other languages have other words.
	args := append([]string{"env", "LC_ALL=C"}, d.query...)
	output, err := p.commands.Run(ctx, "", append(args, name)...)
	if err == nil {
		return d.owns(output), true
	}
	var exit interface {
		error
		ExitCode() int
	}
	return false, errors.As(err, &exit) && exit.ExitCode() == notFound && d.denies(output, err)
}
