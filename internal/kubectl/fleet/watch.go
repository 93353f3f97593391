package fleet

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// relistDelay is the time between the end of a watch and the next list.
const relistDelay = time.Second

// watcher prints hosts whose rows change. It keeps a hash for each printed host.
type watcher struct {
	*Lister

	printer Printer
	seed    maphash.Seed
	printed map[types.NamespacedName]uint64
}

// Watch prints the selected hosts, and each of them again when its row changes, until ctx
// ends. A host that the filter no longer selects is printed once more.
func (l *Lister) Watch(ctx context.Context, p Printer) error {
	w := &watcher{Lister: l, printer: p, seed: maphash.MakeSeed(), printed: map[types.NamespacedName]uint64{}}
	for ctx.Err() == nil {
		if err := w.listAndWatch(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-l.Clock.After(relistDelay):
		}
	}
	return nil
}

// listAndWatch prints what changed since the last call, and watches until the API server ends
// the watch.
func (w *watcher) listAndWatch(ctx context.Context) error {
	gone := make(map[types.NamespacedName]bool, len(w.printed))
	for key := range w.printed {
		gone[key] = true
	}
	version, err := w.pages(ctx, func(hosts []Host) error {
		for _, host := range hosts {
			delete(gone, client.ObjectKeyFromObject(host))
		}
		return w.print(hosts...)
	})
	if err != nil {
		return err
	}
	for key := range gone {
		if err := w.remove(Host{&infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, deleted}); err != nil {
			return err
		}
	}
	options := append(w.options(), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true}})
	events, err := w.Client.Watch(ctx, &infrav1.ElementalHostList{}, options...)
	if err != nil {
		return fmt.Errorf("watching hosts: %w", err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if err := w.handle(event); err != nil || event.Type == watch.Error {
			return err
		}
	}
	return nil
}

func (w *watcher) handle(event watch.Event) error {
	if event.Type == watch.Error {
		err := apierrors.FromObject(event.Object)
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return nil
		}
		return fmt.Errorf("watching hosts: %w", err)
	}
	host, ok := event.Object.(*infrav1.ElementalHost)
	if !ok {
		return errors.New("watching hosts: the API server sent another kind of object")
	}
	if event.Type == watch.Bookmark {
		return nil
	}
	selected, ok := w.selects(host)
	switch {
	case event.Type == watch.Deleted:
		return w.remove(Host{host, deleted})
	case ok:
		return w.print(selected)
	default:
		return w.remove(selected)
	}
}

// print prints the hosts whose rows have changed.
func (w *watcher) print(hosts ...Host) error {
	var changed []Host
	for _, host := range hosts {
		// The time of the last contact passes by itself, so it counts from zero.
		hash := maphash.String(w.seed, fmt.Sprint(row(host.ElementalHost, host.State, time.Time{}).Cells...))
		key := client.ObjectKeyFromObject(host)
		if known, ok := w.printed[key]; !ok || known != hash {
			w.printed[key] = hash
			changed = append(changed, host)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	return w.printer.Print(changed)
}

// remove prints a host for the last time, if it was printed before.
func (w *watcher) remove(host Host) error {
	key := client.ObjectKeyFromObject(host)
	if _, ok := w.printed[key]; !ok {
		return nil
	}
	delete(w.printed, key)
	return w.printer.Print([]Host{host})
}
