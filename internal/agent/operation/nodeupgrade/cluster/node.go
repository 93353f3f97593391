package cluster

import (
	"context"
	"fmt"
)

// Node is the Node of this host.
type Node struct {
	Name string
	// Version is that of its kubelet.
	Version       string
	Ready         bool
	Unschedulable bool
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
}

func isReady(conditions []condition) bool {
	for _, c := range conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return false
}

type nodeObject struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable bool `json:"unschedulable"`
	} `json:"spec"`
	Status struct {
		Conditions []condition `json:"conditions"`
		NodeInfo   struct {
			KubeletVersion string `json:"kubeletVersion"`
		} `json:"nodeInfo"`
	} `json:"status"`
}

// Node returns the Node of this host.
func (c Client) Node(ctx context.Context) (Node, error) {
	access, name, err := c.access()
	if err != nil {
		return Node{}, err
	}
	var object nodeObject
	if err := access.Get(ctx, &object, "api", "v1", "nodes", name); err != nil {
		return Node{}, fmt.Errorf("getting Node %s: %w", name, err)
	}
	return Node{
		Name: name, Version: object.Status.NodeInfo.KubeletVersion,
		Ready: isReady(object.Status.Conditions), Unschedulable: object.Spec.Unschedulable,
	}, nil
}

// SetUnschedulable cordons or uncordons the Node of this host.
func (c Client) SetUnschedulable(ctx context.Context, unschedulable bool) error {
	access, name, err := c.access()
	if err != nil {
		return err
	}
	patch := map[string]any{"spec": map[string]any{"unschedulable": unschedulable}}
	if err := access.Patch(ctx, patch, nil, "api", "v1", "nodes", name); err != nil {
		return fmt.Errorf("setting spec.unschedulable of Node %s to %t: %w", name, unschedulable, err)
	}
	return nil
}
