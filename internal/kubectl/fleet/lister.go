package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// defaultPageSize is the number of hosts in memory at a time.
const defaultPageSize = 500

// Filter selects hosts.
type Filter struct {
	// Labels of the hosts; nil selects all.
	Labels labels.Selector
	// States are reasons of the condition Ready, in any case; none selects all.
	States []string
	// Cluster that has claimed the hosts; blank selects all.
	Cluster string
	// Registration that the hosts enrolled with; blank selects all.
	Registration string
}

// Lister lists hosts.
type Lister struct {
	Client client.WithWatch
	Clock  clock.WithTicker
	// Namespace of the hosts; blank for all namespaces.
	Namespace string
	Filter    Filter
	// PageSize is the number of hosts of one request; 0 is 500.
	PageSize int64
}

// Printer prints hosts as they are read.
type Printer interface {
	// Print prints the hosts of one page. It keeps none of them.
	Print(hosts []Host) error
	// Close ends the output.
	Close() error
}

// Host is a host with its state.
type Host struct {
	*infrav1.ElementalHost

	// State is the reason of the condition Ready.
	State string
}

// List prints the hosts that the filter selects, and returns their number.
func (l *Lister) List(ctx context.Context, p Printer) (int, error) {
	count := 0
	_, err := l.pages(ctx, func(hosts []Host) error {
		count += len(hosts)
		return p.Print(hosts)
	})
	if err != nil {
		return count, err
	}
	return count, p.Close()
}

// pages calls visit with the selected hosts of each page. It returns the resource version of
// the list.
func (l *Lister) pages(ctx context.Context, visit func([]Host) error) (string, error) {
	options := l.options()
	size := l.PageSize
	if size == 0 {
		size = defaultPageSize
	}
	next := ""
	for {
		list := &infrav1.ElementalHostList{}
		err := l.Client.List(ctx, list, append([]client.ListOption{client.Limit(size), client.Continue(next)}, options...)...)
		switch {
		case apierrors.IsResourceExpired(err):
			return "", errors.New("listing hosts: the output took so long that the list has expired; run the command again")
		case err != nil:
			return "", fmt.Errorf("listing hosts: %w", err)
		}
		if err := visit(l.selected(list.Items)); err != nil {
			return "", err
		}
		if next = list.Continue; next == "" {
			return list.ResourceVersion, nil
		}
	}
}

// options are what the API server selects by.
func (l *Lister) options() []client.ListOption {
	options := []client.ListOption{client.InNamespace(l.Namespace)}
	if l.Filter.Labels != nil {
		options = append(options, client.MatchingLabelsSelector{Selector: l.Filter.Labels})
	}
	return options
}

func (l *Lister) selected(hosts []infrav1.ElementalHost) []Host {
	var selected []Host
	for i := range hosts {
		if host, ok := l.selects(&hosts[i]); ok {
			selected = append(selected, host)
		}
	}
	return selected
}

// selects reports whether the host meets what the API server can't select by.
func (l *Lister) selects(host *infrav1.ElementalHost) (Host, bool) {
	h := Host{host, stateOf(host, l.Clock.Now())}
	f := l.Filter
	isOfState := len(f.States) == 0 || slices.ContainsFunc(f.States, func(s string) bool { return strings.EqualFold(s, h.State) })
	isOfCluster := f.Cluster == "" || host.Spec.Claim != nil && host.Spec.Claim.ClusterName == f.Cluster
	ref := host.Spec.RegistrationRef
	isOfRegistration := f.Registration == "" || ref != nil && ref.Name == f.Registration
	return h, isOfState && isOfCluster && isOfRegistration
}
