package linux

import (
	"context"
	"regexp"
	"slices"
	"strings"
)

// leftoverChains matches the declarations of chains and tables that kube-proxy,
// the kubelet and CNI plugins create.
var leftoverChains = regexp.MustCompile(`^(:|\s*chain |table \S+ )((KUBE|CNI|FLANNEL)-|cali-|CILIUM_|kube-proxy\b|cni_hostport\b)`)

// leftoverRule matches a line of iptables-save that belongs to Kubernetes.
var leftoverRule = regexp.MustCompile(`(?m)(^:|\s)((KUBE|CNI|FLANNEL)-|cali-|CILIUM_)`)

// packetFilter finds and removes what Kubernetes adds to iptables and nftables.
type packetFilter struct{ runner }

// leftovers lists chains and tables of Kubernetes. A program that is not
// installed has none.
func (f packetFilter) leftovers(ctx context.Context) []string {
	var found []string
	for _, list := range [][]string{{"iptables-save"}, {"ip6tables-save"}, {"nft", "list", "tables"}} {
		output, err := f.commands.Run(ctx, "", list...)
		if err != nil {
			continue
		}
		for line := range strings.Lines(output) {
			match := leftoverChains.FindString(line)
			if match == "" {
				continue
			}
			fields := strings.Fields(strings.TrimLeft(line, ": \t"))
			if list[0] == "nft" {
				found = append(found, strings.Join(fields, " "))
			} else if len(fields) > 0 {
				found = append(found, list[0][:len(list[0])-len("-save")]+" "+fields[0])
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// clean removes the rules of Kubernetes and keeps all others. It returns no
// error: leftovers reports what it could not remove.
func (f packetFilter) clean(ctx context.Context) {
	for _, program := range []string{"iptables", "ip6tables"} {
		saved, err := f.output(ctx, commandTimeout, program+"-save")
		if err != nil || !leftoverRule.MatchString(saved) {
			continue
		}
		var kept strings.Builder
		for line := range strings.Lines(saved) {
			if !leftoverRule.MatchString(line) {
				kept.WriteString(line)
			}
		}
		_, _ = f.commands.Run(ctx, kept.String(), program+"-restore")
		f.deleteChains(ctx, program)
	}
	tables, err := f.output(ctx, commandTimeout, "nft", "list", "tables")
	if err != nil {
		return
	}
	for line := range strings.Lines(tables) {
		if leftoverChains.MatchString(line) {
			_ = f.run(ctx, commandTimeout, append([]string{"nft", "delete"}, strings.Fields(line)...)...)
		}
	}
}

// deleteChains deletes the chains that iptables-restore keeps: it skips a table
// of which the restored text mentions nothing but built-in chains.
func (f packetFilter) deleteChains(ctx context.Context, program string) {
	saved, err := f.output(ctx, commandTimeout, program+"-save")
	if err != nil {
		return
	}
	var table string
	for line := range strings.Lines(saved) {
		if name, ok := strings.CutPrefix(line, "*"); ok {
			table = strings.TrimSpace(name)
			continue
		}
		name, ok := strings.CutPrefix(line, ":")
		if !ok || !leftoverRule.MatchString(line) {
			continue
		}
		chain, _, _ := strings.Cut(name, " ")
		for _, action := range []string{"--flush", "--delete-chain"} {
			_ = f.run(ctx, commandTimeout, program, "--table", table, action, chain)
		}
	}
}
