//go:build !unix

package testbed

import (
	"errors"
	"os"
	"syscall"
)

const sigCont = syscall.Signal(0)

var errUnsupported = errors.New("throwaway servers need a Unix system")

func tryLock(string) (*os.File, error) { return nil, errUnsupported }

func ownedDir(string) error { return errUnsupported }
