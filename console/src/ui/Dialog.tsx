// Dialogs: the browser's own, which hold the focus, close by Escape and give the focus back.
import { useEffect, useRef, useSyncExternalStore, type ReactNode } from 'react';

let opened = 0;
const listeners = new Set<() => void>();

const note = (change: number): void => {
  opened += change;
  listeners.forEach((listener) => listener());
};

const subscribe = (listener: () => void): (() => void) => {
  listeners.add(listener);
  return () => listeners.delete(listener);
};

/** True while a dialog is open: what it stands in has to stay. */
export const useHasDialog = (): boolean => useSyncExternalStore(subscribe, () => opened > 0);

interface Props {
  title: string;
  onClose: () => void;
  children: ReactNode;
  wide?: boolean;
  className?: string;
  unseenTitle?: boolean;
}

export function Dialog({ title, onClose, children, wide, className = '', unseenTitle }: Props) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = ref.current;
    const before = document.activeElement;
    dialog?.showModal();
    note(1);
    dialog?.querySelector<HTMLElement>('[data-focus]')?.focus();
    return () => {
      dialog?.close();
      note(-1);
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={ref}
      className={`${wide ? 'wide' : ''} ${className}`}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => {
        if (event.target === ref.current) onClose();
      }}
    >
      <div className="inner">
        <h2 className={unseenTitle ? 'unseen' : ''}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
