package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/kube"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/operation/nodeupgrade/cluster"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
)

const (
	// interval is the time between two rounds of evictions.
	interval = 5 * time.Second
	// maxNamed bounds how many Pods a message names.
	maxNamed = 3
)

// Cluster has the Pods of the Node.
type Cluster interface {
	Pods(ctx context.Context) ([]cluster.Pod, error)
	Evict(ctx context.Context, pod cluster.Pod) error
}

// Drain evicts the Pods of the Node until none is left or the time is until. It returns
// what is left then, for people; blank if nothing is. An error means that ctx ended.
func Drain(ctx context.Context, c Cluster, clock retry.Clock, until time.Time, progress func(message string)) (left string, err error) {
	for {
		left, err := round(ctx, c)
		switch {
		case ctx.Err() != nil:
			return "", context.Cause(ctx)
		case err != nil:
			left = err.Error()
		case left == "":
			return "", nil
		}
		if !clock.Now().Before(until) {
			return left, nil
		}
		progress(left)
		if err := clock.Wait(ctx, interval); err != nil {
			return "", err
		}
	}
}

// round asks to evict each Pod that is left, and describes these.
func round(ctx context.Context, c Cluster) (left string, err error) {
	pods, err := c.Pods(ctx)
	if err != nil {
		return "", err
	}
	pods = slices.DeleteFunc(pods, isSpared)
	var reason string
	for _, pod := range pods {
		err := c.Evict(ctx, pod)
		if status, ok := errors.AsType[*kube.StatusError](err); ok && status.Code == http.StatusNotFound {
			continue
		}
		if err != nil && reason == "" {
			reason = fmt.Sprintf("%s/%s: %.256s", pod.Namespace, pod.Name, err.Error())
		}
	}
	return describe(pods, reason), nil
}

// isSpared reports whether a Pod stays. A Pod with a deletion timestamp is evicted again,
// which changes nothing, and is waited for.
func isSpared(p cluster.Pod) bool { return p.Mirror || p.DaemonSet || p.Finished || p.KeptByDrain }

func describe(pods []cluster.Pod, reason string) string {
	if len(pods) == 0 {
		return ""
	}
	var names []string
	for _, pod := range pods[:min(len(pods), maxNamed)] {
		names = append(names, pod.Namespace+"/"+pod.Name)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d Pods are left: %s", len(pods), strings.Join(names, ", "))
	if len(pods) > maxNamed {
		text += " and others"
	}
	if reason != "" {
		text += "; " + reason
	}
	return text
}
