package agent

import (
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// observation describes the host.
type observation struct {
	inventory   protocol.Inventory
	addresses   []protocol.Address
	cleanliness protocol.Cleanliness
	// trustDigest is that of the trust bundle in use.
	trustDigest string
	endpoint    endpointFact
	// bundle is nil until it is known what is staged.
	bundle *protocol.BundleReport
	// etcdSnapshots is nil until it is known which ones there are. Nobody changes what it
	// points to.
	etcdSnapshots *protocol.EtcdSnapshotReport
	// etcdSnapshotUpload is nil before the first upload. Nobody changes what it points to.
	etcdSnapshotUpload *protocol.EtcdSnapshotUploadReport
	// certificates is nil until they have been read. Nobody changes what it points to.
	certificates *protocol.CertificateReport
	// successor is nil until the first one has been tried. Nobody changes what it points to.
	successor *protocol.SuccessorReport
}

// facts are the latest observation and the one that the manager has acknowledged. They
// are safe for concurrent use.
type facts struct {
	mu     sync.Mutex
	latest observation
	// reported is nil if everything must be reported.
	reported *observation
	// unanswered are the parts that were sent and not acknowledged since. The manager may
	// have received them or not, so they are sent again even if they are as in reported by
	// now.
	unanswered parts
}

// parts are the parts of an observation that a report has.
type parts struct {
	inventory, addresses, cleanliness, endpoint, bundle, etcdSnapshots, etcdSnapshotUpload, certificates, successor, hello bool
}

func (f *facts) current() observation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest
}

func (f *facts) update(change func(*observation)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.latest)
}

// resetReported makes the next report include everything.
func (f *facts) resetReported() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reported = nil
}

// setReported records what the manager has acknowledged, and which parts of it were sent.
func (f *facts) setReported(o observation, sent parts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	// All other parts are sent as long as they are unanswered.
	f.reported, f.unanswered = &o, parts{endpoint: f.unanswered.endpoint && !sent.endpoint}
}

// news returns next if it belongs into a report: it is known, and the manager has not
// acknowledged it or has to get it again.
func news[T any](acknowledged, next *T, repeat bool) (report *T, isNews bool) {
	if next == nil || (!repeat && reflect.DeepEqual(acknowledged, next)) {
		return nil, false
	}
	return next, true
}

// addChanges adds to report what the manager may not know, and returns the arguments of
// setReported. If sent.hello is true, the report must also have a Hello. now is the time of
// the report. The caller sends the report.
func (f *facts) addChanges(report *protocol.Report, now time.Time) (next observation, sent parts) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next = f.latest
	sent = f.unanswered
	sent.inventory = sent.inventory || f.reported == nil || !reflect.DeepEqual(f.reported.inventory, next.inventory)
	sent.addresses = sent.addresses || f.reported == nil || !slices.Equal(f.reported.addresses, next.addresses)
	sent.cleanliness = sent.cleanliness || f.reported == nil || !reflect.DeepEqual(f.reported.cleanliness, next.cleanliness)
	sent.hello = sent.hello || f.reported == nil || f.reported.trustDigest != next.trustDigest
	sent.endpoint = next.endpoint.isReportable() &&
		(sent.endpoint || f.reported == nil || !reflect.DeepEqual(f.reported.endpoint, next.endpoint))
	var known observation
	if f.reported != nil {
		known = *f.reported
	}
	report.Bundle, sent.bundle = news(known.bundle, next.bundle, sent.bundle)
	report.EtcdSnapshots, sent.etcdSnapshots = news(known.etcdSnapshots, next.etcdSnapshots, sent.etcdSnapshots)
	report.EtcdSnapshotUpload, sent.etcdSnapshotUpload = news(known.etcdSnapshotUpload, next.etcdSnapshotUpload, sent.etcdSnapshotUpload)
	report.Certificates, sent.certificates = news(known.certificates, next.certificates, sent.certificates)
	report.Successor, sent.successor = news(known.successor, next.successor, sent.successor)
	if sent.inventory {
		report.Inventory = &next.inventory
	}
	if sent.addresses {
		report.Addresses = next.addresses
	}
	if sent.cleanliness {
		report.Cleanliness = &next.cleanliness
	}
	switch {
	case sent.endpoint:
		report.Endpoint = next.endpoint.report(now)
	case !next.endpoint.isReportable():
		next.endpoint = endpointFact{}
		if f.reported != nil {
			next.endpoint = f.reported.endpoint
		}
	}
	isEndpointUnanswered := f.unanswered.endpoint
	f.unanswered = sent
	// An endpoint that can't be reported now is sent later.
	f.unanswered.endpoint = sent.endpoint || isEndpointUnanswered
	return next, sent
}
