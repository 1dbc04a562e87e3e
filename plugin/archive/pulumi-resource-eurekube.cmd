@echo off
rem Starts the plugin of an archive, which has its libraries: by a Python of the minor version that they are for.
set /p needed=<"%~dp0python-version"
set "python=python"
py -%needed% -c "" >nul 2>nul && set "python=py -%needed%"
%python% -I "%~dp0start.py" %*
