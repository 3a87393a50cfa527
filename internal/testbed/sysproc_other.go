//go:build !linux

package testbed

import "syscall"

// Only Linux ends a child with its parent, and only there servers are started for root.
func sysProcAttr(*User, syscall.Signal) *syscall.SysProcAttr { return nil }
