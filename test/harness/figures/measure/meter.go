package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
		// The time is longer than any measurement.
		url := strings.TrimSuffix(config.Host, "/") + path + "?watch=1&timeoutSeconds=36000"
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			m.Cancel()
			return nil, fmt.Errorf("watching %s: %w", path, err)
		}
		response, err := c.Do(request)
		if err != nil {
			m.Cancel()
			return nil, fmt.Errorf("watching %s: %w", path, err)
		}
		m.group.Go(func() {
			err := m.count(response)
			m.mu.Lock()
			defer m.mu.Unlock()
			if ctx.Err() == nil {
				m.err = errors.Join(m.err, fmt.Errorf("watching %s: %w", path, err))
			}
		})
	}
	return m, nil
}

// count counts the versions of a watch until it ends.
func (m *Meter) count(response *http.Response) error {
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	versions := json.NewDecoder(response.Body)
	for {
		var version struct {
			Type   string
			Object json.RawMessage
		}
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := versions.Decode(&version); err != nil {
			return fmt.Errorf("reading a version: %w", err)
		}
		if err := json.Unmarshal(version.Object, &object); err != nil {
			return fmt.Errorf("reading a version: %w", err)
		}
		if version.Type != "ADDED" && version.Type != "MODIFIED" {
			return fmt.Errorf("it is %s: %s", version.Type, version.Object)
		}
		m.add(len(version.Object), object.Kind, object.Metadata.Name)
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
