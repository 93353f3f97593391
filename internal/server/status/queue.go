package status

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
)

// Queue holds the hosts whose status may have to be written. Use NewQueue. It is safe for
// concurrent use.
type Queue struct {
	workqueue.TypedRateLimitingInterface[types.NamespacedName]

	waiting *waiting
}

// NewQueue returns a Queue. ShutDown ends the workers.
func NewQueue() *Queue {
	type host = types.NamespacedName
	q := &Queue{waiting: &waiting{}}
	inner := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[host]{Queue: q.waiting})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[host]{Queue: inner})
	q.TypedRateLimitingInterface = workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[host](), workqueue.TypedRateLimitingQueueConfig[host]{DelayingQueue: delaying})
	return q
}

// Done marks a host that Get has returned as processed.
func (q *Queue) Done(host types.NamespacedName) {
	q.TypedRateLimitingInterface.Done(host) // may add it again
	q.waiting.unfinished.Add(-1)
}

// Unfinished returns how many hosts are queued or being processed. Hosts that are added
// again later, after an error, do not count until then.
func (q *Queue) Unfinished() int { return int(q.waiting.unfinished.Load()) }

// waiting implements workqueue.Queue, whose methods are called under a lock.
type waiting struct {
	hosts []types.NamespacedName
	// unfinished counts calls of Push without one of Queue.Done.
	unfinished atomic.Int64
}

// Touch implements workqueue.Queue.
func (*waiting) Touch(types.NamespacedName) {}

// Push implements workqueue.Queue.
func (w *waiting) Push(host types.NamespacedName) {
	w.unfinished.Add(1)
	w.hosts = append(w.hosts, host)
}

// Len implements workqueue.Queue.
func (w *waiting) Len() int { return len(w.hosts) }

// Pop implements workqueue.Queue.
func (w *waiting) Pop() types.NamespacedName {
	first := w.hosts[0]
	w.hosts = w.hosts[1:]
	return first
}
