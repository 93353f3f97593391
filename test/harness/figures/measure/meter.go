package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// Meter counts the bytes of all versions of objects, in JSON, which is how the API server stores custom resources. It is
// safe for concurrent use.
type Meter struct {
	start time.Time
	// Cancel ends the counting without waiting for it.
	Cancel context.CancelFunc
	group  sync.WaitGroup

	mu sync.Mutex
	// minutes has the bytes of each minute since start.
	minutes []int
	kinds   map[string]*metered
	err     error
}

// metered is what was counted of a kind.
type metered struct {
	names             map[string]bool
	versions, largest int
}

// NewMeter starts counting the objects at the given paths, such as /api/v1/namespaces/NAME/secrets. There must be no
// objects yet.
func NewMeter(ctx context.Context, config *rest.Config, paths ...string) (*Meter, error) {
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for watches: %w", err)
	}
	m := &Meter{start: time.Now(), kinds: map[string]*metered{}}
	ctx, m.Cancel = context.WithCancel(ctx)
	for _, path := range paths {
		w := &watch{client: c, url: strings.TrimSuffix(config.Host, "/") + path}
		if err := w.begin(ctx); err != nil {
			m.Cancel()
			return nil, fmt.Errorf("watching %s: %w", path, err)
		}
		m.group.Go(func() {
			err := m.count(ctx, w)
			m.mu.Lock()
			defer m.mu.Unlock()
			if ctx.Err() == nil {
				m.err = errors.Join(m.err, fmt.Errorf("watching %s: %w", path, err))
			}
		})
	}
	return m, nil
}

// watch is what requests the versions of objects.
type watch struct {
	client *http.Client
	url    string
	// version is the resource version up to which versions were counted.
	version string
}

// entity is an object or a list.
type entity struct {
	Kind     string
	Metadata struct{ Name, ResourceVersion string }
}

// begin makes the watch begin now.
func (w *watch) begin(ctx context.Context) error {
	body, err := w.get(ctx, "?limit=1")
	if err != nil {
		return err
	}
	var list entity
	if err := errors.Join(json.NewDecoder(body).Decode(&list), body.Close()); err != nil {
		return fmt.Errorf("reading the list: %w", err)
	}
	w.version = list.Metadata.ResourceVersion
	return nil
}

// get requests the objects. The caller closes what is returned.
func (w *watch) get(ctx context.Context, query string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+query, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := w.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(response.Status), response.Body.Close())
	}
	return response.Body, nil
}

// count counts versions until ctx ends. An API server may end a watch at any time, for example if its client is slow.
// The next one begins where it ended, so nothing is missed.
func (m *Meter) count(ctx context.Context, w *watch) error {
	for {
		// The time is longer than any measurement.
		body, err := w.get(ctx, "?watch=1&timeoutSeconds=36000&resourceVersion="+w.version)
		if err != nil {
			return err
		}
		if err := errors.Join(m.read(w, body), body.Close()); err != nil {
			return err
		}
	}
}

// read counts the versions of a watch until the API server ends it.
func (m *Meter) read(w *watch, body io.Reader) error {
	versions := json.NewDecoder(body)
	for {
		var version struct {
			Type   string
			Object json.RawMessage
		}
		var object entity
		if err := versions.Decode(&version); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading a version: %w", err)
		}
		if err := json.Unmarshal(version.Object, &object); err != nil {
			return fmt.Errorf("reading a version: %w", err)
		}
		if version.Type != "ADDED" && version.Type != "MODIFIED" {
			return fmt.Errorf("it is %s: %s", version.Type, version.Object)
		}
		m.add(len(version.Object), object.Kind, object.Metadata.Name)
		w.version = object.Metadata.ResourceVersion
	}
}

func (m *Meter) add(bytes int, kind, name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	minute := int(time.Since(m.start) / time.Minute)
	for len(m.minutes) <= minute {
		m.minutes = append(m.minutes, 0)
	}
	m.minutes[minute] += bytes
	k := m.kind(kind)
	k.names[name] = true
	k.versions++
	k.largest = max(k.largest, bytes)
}

// kind returns the count of a kind. The caller holds the lock.
func (m *Meter) kind(kind string) *metered {
	if m.kinds[kind] == nil {
		m.kinds[kind] = &metered{names: map[string]bool{}}
	}
	return m.kinds[kind]
}

// Stop ends the counting. The figures are complete then.
func (m *Meter) Stop() error {
	m.Cancel()
	m.group.Wait()
	return m.err
}

// Rates returns the bytes of the first minute, and the most of a minute after it.
func (m *Meter) Rates() (first, later int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, bytes := range m.minutes {
		if i == 0 {
			first = bytes
		} else {
			later = max(later, bytes)
		}
	}
	return first, later
}

// Objects returns the number of objects of a kind.
func (m *Meter) Objects(kind string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.kind(kind).names)
}

// Versions returns the number of versions of all objects of a kind.
func (m *Meter) Versions(kind string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kind(kind).versions
}

// Largest returns the bytes of the largest version of a kind.
func (m *Meter) Largest(kind string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kind(kind).largest
}
