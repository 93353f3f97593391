package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// CreateNetwork creates a network if it is missing, with further flags of docker network create. That of the lab has the
// lab's name.
func (e *Engine) CreateNetwork(ctx context.Context, name, subnet string, flags ...string) error {
	out, err := e.Docker(ctx, "network", "ls", "--quiet", "--filter", "name=^"+name+"$")
	if err != nil {
		return fmt.Errorf("listing networks: %w", err)
	}
	if out != "" {
		return nil
	}
	args := slices.Concat([]string{"network", "create", "--label", Label + "=" + e.Lab, "--subnet", subnet}, flags, []string{name})
	_, err = e.Docker(ctx, args...)
	if err != nil {
		return fmt.Errorf("creating the network: %w", err)
	}
	return nil
}

// Hosts returns the hosts that exist, on or off, by name. A host in two networks, which is a
// router, is none of them.
func (e *Engine) Hosts(ctx context.Context) ([]*Host, error) {
	ids, err := e.ids(ctx, "ps", "--all")
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	format := `{{.Name}}{{range .NetworkSettings.Networks}} {{with .IPAMConfig}}{{.IPv4Address}}{{end}}{{end}}`
	out, err := e.Docker(ctx, append([]string{"inspect", "--format", format}, ids...)...)
	if err != nil {
		return nil, fmt.Errorf("looking at hosts: %w", err)
	}
	var hosts []*Host
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) != 2 {
			continue
		}
		hosts = append(hosts, e.Host(strings.TrimPrefix(fields[0], "/"+e.Lab+"-"), fields[1]))
	}
	slices.SortFunc(hosts, func(a, b *Host) int { return cmp.Compare(a.Name, b.Name) })
	return hosts, nil
}

// Clean removes the lab's containers with their volumes, and its network, regardless of the run
// that created them.
func (e *Engine) Clean(ctx context.Context) error {
	containers, err := e.ids(ctx, "ps", "--all")
	if err != nil {
		return err
	}
	if len(containers) > 0 {
		if _, err := e.Docker(ctx, append([]string{"rm", "--force", "--volumes"}, containers...)...); err != nil {
			return fmt.Errorf("removing hosts: %w", err)
		}
	}
	networks, err := e.ids(ctx, "network", "ls")
	if err != nil {
		return err
	}
	if len(networks) > 0 {
		if _, err := e.Docker(ctx, append([]string{"network", "rm"}, networks...)...); err != nil {
			return fmt.Errorf("removing the network: %w", err)
		}
	}
	return nil
}

// ids runs a docker list command and returns the IDs that carry the lab's label.
func (e *Engine) ids(ctx context.Context, list ...string) ([]string, error) {
	out, err := e.Docker(ctx, append(list, "--quiet", "--filter", "label="+Label+"="+e.Lab)...)
	if err != nil {
		return nil, fmt.Errorf("listing what the lab has in Docker: %w", err)
	}
	return strings.Fields(out), nil
}
