package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/change"
)

func (e *environment) approve() *cobra.Command {
	var fingerprint, file string
	cmd := &cobra.Command{
		Use: "approve {HOST --fingerprint SHA256 | -f FILE}", Short: "Approve hosts whose keys have the fingerprints that you give",
		Long: "Approves a host if its key has the fingerprint that `elemental-agent status` prints on the machine.\n" +
			"With -f, approves the hosts whose fingerprints a file names, one a line. Other hosts stay as they are.",
		Example: "  kubectl elemental approve box-1 --fingerprint sha256:…\n\n" +
			"  # A list of fingerprints from standard input\n" +
			"  kubectl elemental approve -f - < fingerprints",
		Args: cobra.MaximumNArgs(1),
	}
	a := e.actor(cmd)
	cmd.Flags().StringVar(&fingerprint, "fingerprint", "", "fingerprint of the host's key")
	cmd.Flags().StringVarP(&file, "filename", "f", "", "file with one fingerprint a line; - is standard input")
	cmd.Flags().StringVarP(&a.selector, "selector", "l", "", "with -f: only hosts with these labels")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) == 1) == (file != "") || (len(args) == 1) != (fingerprint != "") || (len(args) == 1 && a.selector != "") {
			return errors.New("name one host and give --fingerprint, or give fingerprints by -f")
		}
		if err := a.connect(); err != nil {
			return err
		}
		if file != "" {
			return a.approveListed(cmd.Context(), file)
		}
		want, err := change.ParseFingerprint(fingerprint)
		if err != nil {
			return err
		}
		host, err := change.Host(cmd.Context(), a.client, a.namespace, args[0])
		if err != nil {
			return err
		}
		return a.do(cmd.Context(), func() (*change.Plan, error) { return change.Approve(host, want) })
	}
	return cmd
}

// approveListed approves the hosts whose fingerprints a file has.
func (a *actor) approveListed(ctx context.Context, file string) error {
	fingerprints, err := a.readFingerprints(file)
	if err != nil {
		return err
	}
	byFingerprint, err := a.hostsByFingerprint(ctx, fingerprints)
	if err != nil {
		return err
	}
	var failed []error
	for _, fingerprint := range fingerprints {
		hosts := byFingerprint[fingerprint]
		if len(hosts) != 1 {
			failed = append(failed, fmt.Errorf("%d hosts of namespace %s have the key %s. %s", len(hosts), a.namespace, fingerprint,
				"Its machine must have enrolled, as one host"))
			continue
		}
		if err := a.do(ctx, func() (*change.Plan, error) { return change.Approve(&hosts[0], fingerprint) }); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

func (a *actor) readFingerprints(name string) (list []string, err error) {
	if name == "-" {
		return change.ReadFingerprints(a.In)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("opening the list of fingerprints: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return change.ReadFingerprints(file)
}

// hostsByFingerprint finds the hosts with the fingerprints. They are listed by pages.
func (a *actor) hostsByFingerprint(ctx context.Context, fingerprints []string) (map[string][]infrav1.ElementalHost, error) {
	selected, err := a.labels()
	if err != nil {
		return nil, err
	}
	found := map[string][]infrav1.ElementalHost{}
	list := &infrav1.ElementalHostList{}
	for next := ""; ; next = list.Continue {
		if err := a.client.List(ctx, list, client.InNamespace(a.namespace), client.MatchingLabelsSelector{Selector: selected},
			client.Limit(maxHosts), client.Continue(next)); err != nil {
			return nil, fmt.Errorf("listing hosts: %w", err)
		}
		for i := range list.Items {
			if f := change.Fingerprint(&list.Items[i]); f != "" && contains(fingerprints, f) {
				found[f] = append(found[f], list.Items[i])
			}
		}
		if list.Continue == "" {
			return found, nil
		}
	}
}

// contains looks for a fingerprint in a sorted list.
func contains(sorted []string, fingerprint string) bool {
	_, ok := slices.BinarySearch(sorted, fingerprint)
	return ok
}
